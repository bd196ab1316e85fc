"""What an instance tells of an engine that it starts no more: written by its scripts, read by the provider."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.model.catalogue import Market
from fleetctl.model.node import Node, NodeState
from fleetctl.testing.samples import EPOCH, node_request
from fleetctl_aws.given_up import given_up_in, with_crash_loop
from fleetctl_aws.instances import ENDED_ITSELF
from fleetctl_aws.settings import AwsSettings
from fleetctl_aws.user_data import boot_files

if TYPE_CHECKING:
    from pathlib import Path

REPORT = {"order": "t-1", "ends": 3, "within_s": 600, "how": "exit 1", "tail": "ValueError: no\n"}


class Slot:
    """The scripts of an instance's slot 1 in a directory of their own, among programs of the test's."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.run = directory, directory / "run/fleetctl"
        self.run.mkdir(parents=True)
        (self.run / "slot-1").write_text("t-1\n")
        (directory / "bin").mkdir()
        self.program("journalctl", "echo loading; echo 'token s3cret of HF_TOKEN'; echo 'ValueError: no'")
        self.program("systemctl", f'echo "$*" >>{directory}/done; [ "$1" != is-active ] || echo failed')
        files = boot_files(node_request(port=8000), AwsSettings(image="x"), region="us-east-1", secrets_path="")
        self._texts = {each.path.rpartition("/")[2]: each.content for each in files}

    def program(self, name: str, script: str) -> None:
        path = self.directory / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def ran(self, name: str, **report: str) -> None:
        text = self._texts[name].replace("/run/fleetctl", str(self.run)).replace("3000, 15", "3000, 0")
        shell = [sys.executable, "-c"] if "python3" in text.partition("\n")[0] else ["/bin/sh", "-c"]
        path = f"{self.directory}/bin:{os.environ['PATH']}"
        words = [text, "1"] if "python" in shell[0] else [text, name, "1"]
        subprocess.run([*shell, *words], env={"PATH": path, **report}, check=True, timeout=30)

    def report(self) -> dict[str, Any]:
        return {"given_up": {"1": json.loads((self.directory / "run/fleetctl-given-up/1").read_text())}}

    def done(self) -> list[str]:
        return (self.directory / "done").read_text().splitlines()


@pytest.mark.parametrize(
    ("phase", "ended", "how"),
    [
        ("loading", ("exit-code", "exited", "1"), "exit 1"),
        ("loading", ("exit-code", "exited", "137"), "signal 9"),
        ("loading", ("signal", "killed", "TERM"), "signal 15"),
        ("gpu-check", ("exit-code", "", ""), "did not get beyond gpu-check (exit-code)"),
        ("", ("exit-code", "", ""), "exit-code"),
    ],
)
def test_how_it_ended_is_what_systemd_says(tmp_path: Path, phase: str, ended: tuple[str, str, str], how: str) -> None:
    slot = Slot(tmp_path)
    if phase:
        (tmp_path / "run/fleetctl-boot").mkdir()
        (tmp_path / "run/fleetctl-boot/1").write_text(f"image 1.5\n{phase} 2.5\n")
    names = ("SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS")
    for _ in range(3):
        slot.ran("note-end", **{name: word for name, word in zip(names, ended, strict=True) if word})
    slot.ran("given-up")
    loop = given_up_in(slot.report())[1].loop
    assert (loop.ends, loop.exit_reason) == (3, how)
    assert loop.text == f"its engine ended 3 times in 10m: {how}"
    assert slot.done()[-1] == "poweroff"


def test_what_it_wrote_last_is_told_without_its_secrets_and_forgotten_with_its_next_start(tmp_path: Path) -> None:
    slot = Slot(tmp_path)
    (slot.run / "secrets.env").write_text("HF_TOKEN=s3cret\n")
    (tmp_path / "run/fleetctl-ends").mkdir()
    (tmp_path / "run/fleetctl-ends/1").write_text("1 loading exit-code exited 2\n")  # in another century
    slot.ran("note-end", SERVICE_RESULT="exit-code", EXIT_CODE="exited", EXIT_STATUS="1")
    slot.ran("given-up")
    found = given_up_in(slot.report())[1]
    assert (found.order, found.loop.ends) == ("t-1", 1)
    assert found.loop.log_tail == "loading\ntoken *** of HF_TOKEN\nValueError: no\n"
    slot.program("docker", "exit 1")  # no such container
    slot.ran("clear-slot")
    assert not (tmp_path / "run/fleetctl-given-up/1").exists()


@pytest.mark.parametrize("state", ["active", "activating"])
def test_a_machine_with_another_engine_that_runs_or_starts_stays(tmp_path: Path, state: str) -> None:
    slot = Slot(tmp_path)
    (slot.run / "slot-0").write_text("t-0\n")
    slot.program("systemctl", f'echo "$*" >>{tmp_path}/done; case $2 in *@0.*) echo {state} ;; *) echo failed ;; esac')
    slot.ran("given-up")
    assert "poweroff" not in slot.done()


@pytest.mark.parametrize("report", [{}, {**REPORT, "ends": "many"}, {**REPORT, "within_s": None}, [], "no slot"])
def test_what_is_in_another_form_says_nothing_and_leaves_the_others_alone(report: object) -> None:
    assert list(given_up_in({"given_up": {"0": REPORT, "1": report, "x": REPORT}})) == [0]
    assert given_up_in({"given_up": [1]}) == given_up_in({}) == {}


def node(order: str, state: NodeState, *, exit_reason: str = "") -> Node:
    return Node(
        id="i-1/1", token=order, owner="o", fleet="demo", replica_id="r1", state=state, market=Market.SPOT, host="10.0.0.1",
        port=8001, created_at=EPOCH, exit_reason=exit_reason,
    )  # fmt: skip


def test_only_the_order_whose_engine_it_was_is_told_of_it() -> None:
    (given_up,) = given_up_in({"given_up": {"1": REPORT}}).values()
    assert with_crash_loop(node("t-1", NodeState.RUNNING), given_up).crash_loop == given_up.loop
    assert with_crash_loop(node("t-2", NodeState.RUNNING), given_up).crash_loop is None
    ended = with_crash_loop(node("t-1", NodeState.GONE, exit_reason=ENDED_ITSELF), given_up)
    assert (ended.exit_reason, ended.log_tail) == ("its engine ended 3 times in 10m: exit 1", REPORT["tail"])

from __future__ import annotations

import os
import socket
import subprocess
import sys

from fleetctl.operations.doctor import Check, Verdict, diagnose
from fleetctl.paths import state_db, state_dir
from fleetctl.testing import samples


def found(name: str) -> Check:
    return {check.name: check for check in diagnose()}[name]


def test_a_healthy_machine_has_nothing_to_mend():
    assert [check for check in diagnose() if check.verdict is Verdict.FAIL] == []
    assert not state_db().exists()  # asking makes nothing


def test_every_finding_that_is_not_ok_says_what_to_do(fleet, monkeypatch):
    monkeypatch.setenv("FLEETCTL_VLLM", "/nonexistent/vllm")
    unwell = [check for check in diagnose() if check.verdict is not Verdict.OK]
    assert {"vllm", "fleet demo"} <= {check.name for check in unwell}
    assert all(check.advice for check in unwell)


def test_a_damaged_store_fails_and_the_rest_is_still_checked(home):
    state_db().parent.mkdir(parents=True, mode=0o700)
    state_db().write_bytes(b"this is no database, and long enough to be read as one" * 40)
    assert found("state").verdict is Verdict.FAIL
    assert "damaged" in found("state").found
    assert found("loopback").verdict is Verdict.OK


def test_a_state_directory_others_can_read_is_warned_of(fleet):
    state_dir().chmod(0o755)
    check = found("state directory")
    assert (check.verdict, check.advice) == (
        Verdict.WARN, f"others on this machine can look in: chmod 700 {state_dir()}",
    )  # fmt: skip


def test_creates_cut_short_are_named(fleet, store):
    store.begin_replica(samples.replica(), samples.node_request(), now=samples.EPOCH)
    assert found("intents").found == "1 creates of demo were cut short"


def test_a_process_of_no_fleet_is_found_by_its_owner_tag(store):
    tags = {"FLEETCTL_OWNER": store.owner, "FLEETCTL_FLEET": "lost", "FLEETCTL_REPLICA": "short-7"}
    sleeper = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(
        sleeper, env={**os.environ, **tags}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        check = found("leftovers")
        process.communicate(b"\n", timeout=20)
    assert check.verdict is Verdict.WARN
    assert f"{process.pid} (replica short-7 of lost)" in check.found
    assert found("leftovers").verdict is Verdict.OK


def test_a_taken_default_port_is_a_warning():
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8080))
        except OSError:
            pass  # somebody else holds it already, which serves as well
        else:
            taken.listen()
        assert found("port").verdict is Verdict.WARN

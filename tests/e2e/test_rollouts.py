"""Rollouts of real processes under load: flags, engine, model and lanes change, a bad revision goes back, and no request fails."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PROFILE = """\
apiVersion: fleetctl/v1
name: roll
model: {{id: {model}, quantization: bf16, served_name: chat}}
engine: emulator
emulator: {{flavour: {flavour}, startup: 200ms, speed: 4}}
provider: local
workload: {{peak_rps: 2, prompt_tokens: {{p50: 200, p99: 900}}, output_tokens: {{p50: 40, p99: 120}}}}
slo: {{objective: 99%, window: 7d}}
lanes:
  short:
    slo: {{ttft: {{p99: 5s}}, itl: {{p99: 1s}}}}
    max_wait: 20s
    replicas: {{min: 2, max: 2}}
    spot: none
    launch: {{max_num_seqs: {seqs}}}
{more}control: {{rollout: {{bake: 4s}}}}
capacity: {{gpus: [L40S], max_nodes: 8}}
gateway: {{host: 127.0.0.1, port: {port}}}
"""
WIDE = "  wide: {match: {batch: true}, slo: {completion: {p95: 10m}}, max_wait: 60s, replicas: {min: 1, max: 1}, spot: none}\n"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


class Change:
    """A profile that is brought up again and again, each time with something changed, under load."""

    def __init__(self, home: Home, directory: Path) -> None:
        self.home, self._file = home, directory / "roll.yaml"
        self._values = {"model": LLAMA, "flavour": "vllm", "seqs": "16", "more": "", "port": str(free_port())}

    def write(self, **values: str) -> str:
        self._values |= values
        self._file.write_text(PROFILE.format(**self._values))
        return str(self._file)

    def under_load(self, *, seconds: int, **values: str) -> tuple[int, str]:
        """Bring the changed profile up while requests come; return its exit code and what it said. None of them fails."""
        load = self.home.start("load", "roll", "--rps", "4", "--duration", f"{seconds}s", "-q", "-o", "json")
        ran = self.home.run("up", self.write(**values), "--yes")
        out, err = load.communicate(timeout=seconds + 120)
        assert load.returncode == 0, err
        total = json.loads(out)["total"]
        assert (total["failed"], total["refused"]) == ({}, 0), total
        assert total["ok"] == total["requests"] > seconds
        return ran.code, ran.err


@pytest.fixture
def change(home: Home, tmp_path: Path) -> Iterator[Change]:
    found = Change(home, tmp_path)
    ran = home.run("up", found.write(), "--yes")
    assert ran.code == 0, ran.err
    yield found
    assert home.run("down", "--yes").code == 0


@pytest.mark.parametrize(
    "values",
    [{"seqs": "24"}, {"flavour": "tgi"}, {"model": "meta-llama/Llama-3.2-3B-Instruct"}, {"more": WIDE}],
    ids=["flag", "engine", "model", "lane-added"],
)
def test_a_change_rolls_without_a_failed_request(change: Change, values: dict[str, str]) -> None:
    code, stderr = change.under_load(seconds=45, **values)
    assert code == 0, stderr
    rollout = change.home.query("rollout", "status")
    assert (rollout["phase"], rollout["revision"]) == ("complete", 2)
    assert all(lane["outdated"] == 0 for lane in rollout["lanes"])


def test_a_controller_killed_in_the_middle_is_followed_by_one_that_finishes(change: Change) -> None:
    load = change.home.start("load", "roll", "--rps", "4", "--duration", "50s", "-q", "-o", "json")
    assert change.home.run("up", change.write(seqs="24"), "--yes", "--detach").code == 0
    os.kill(change.home.query("status")["controller_pid"], signal.SIGKILL)
    out, err = load.communicate(timeout=200)
    assert load.returncode == 0, err
    assert json.loads(out)["total"]["failed"] == {}
    assert change.home.query("rollout", "status")["phase"] == "complete"


def test_an_engine_that_cannot_start_goes_back_with_its_line_and_undo_goes_further_back(change: Change) -> None:
    flags = change.home.root / "conf" / "fleetctl" / "profiles" / "engine-flags"
    flags.mkdir(parents=True)
    (flags / "emulator.txt").write_text("--no-such-flag\n")
    assert change.home.run("up", change.write(seqs="24"), "--yes").code == 0
    code, stderr = change.under_load(seconds=20, seqs="24, extra_args: [--no-such-flag]")
    assert code == 17, (stderr, change.home.run("events", "roll", "-n", "200").out)
    assert "revision 3 failed: short:" in stderr
    assert "--no-such-flag" in stderr
    history = change.home.query("rollout", "history")
    assert [each["number"] for each in history] == [1, 2, 3, 4]
    assert history[-1]["why"].startswith("revision 3 failed, 2 takes its place")
    assert change.home.run("rollout", "undo", "--to", "1", "--yes").code == 0
    assert change.home.query("rollout", "status")["phase"] == "complete"

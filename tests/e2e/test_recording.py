"""A living fleet is recorded under load, gateway and recorder are killed, and what was written is replayed."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PROFILE = """
apiVersion: fleetctl/v1
name: night
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: fp8}
engine: emulator
emulator: {flavour: vllm, startup: 1s}
provider: local
workload: {peak_rps: 1, prompt_tokens: {p50: 300, p99: 900}, output_tokens: {p50: 30, p99: 90}}
lanes:
  only:
    slo: {ttft: {p99: 2s}, itl: {p99: 150ms}}
    max_wait: 1500ms
    replicas: {min: 1, max: 2}
capacity: {gpus: [L4], max_nodes: 4}
control: {shadow_policy: static}
"""


def test_a_recording_outlives_its_recorder_and_says_what_it_missed(home):
    profile, night = home.root / "night.yaml", home.root / "night.jsonl.gz"
    profile.write_text(PROFILE)
    home.fleetctl("up", str(profile), "--port", str(free_port()), "--yes", "-q", timeout_s=240)
    with home.start("record", "night", "-o", str(night), "-q") as recorder:
        home.run("load", "night", "--duration", "12s", "--rps", "3", "-q")
        killed = home.status("night").gateway_pid
        os.kill(killed, signal.SIGKILL)
        until(lambda: _has_another_gateway(home, killed), "another gateway serves")
        home.run("load", "night", "--duration", "6s", "--rps", "3", "-q")
        SYSTEM_CLOCK.sleep_blocking(2.0)
        recorder.kill()
    report = home.query("backtest", str(night), "-q")
    assert 25 < report["requests"] <= 80
    assert [run["name"] for run in report["runs"]] == ["recorded", "replayed"]
    assert any("the gateway was restarted" in line for line in report["cautions"])
    assert any("has no end" in line for line in report["cautions"])
    compared = home.query("shadow", "night")
    assert (compared["active_policy"], compared["shadow_policy"]) == ("built-in", "static")
    assert compared["totals"][0]["compared_s"] > 10.0
    home.fleetctl("down", "night", "--yes", timeout_s=120)


def _has_another_gateway(home: Home, killed: int) -> bool:
    seen = home.status("night")
    return seen.gateway_alive and seen.gateway_pid not in (0, killed)

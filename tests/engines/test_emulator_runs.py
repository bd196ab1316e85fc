"""The emulator, started as the adapter launches it: its pages must read as the engine's it looks like."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.profile import EmulatorSpec
from fleetctl.model.slo import Validity
from fleetctl.plugins import load_engine
from fleetctl.testing import samples
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

START_S = 40.0


@pytest.mark.parametrize("flavour", ["vllm", "tgi", "sglang"])
def test_an_emulated_engine_starts_warms_and_is_read(flavour: str, tmp_path: Path) -> None:
    engine = load_engine("emulator")
    lane = replace(samples.profile().lane("short"), emulator=EmulatorSpec(flavour=flavour, startup_s=0.0))
    port = free_port()
    command = engine.launch(
        plan=samples.plan(), lane=lane, lane_plan=samples.lane_plan("short"), host="127.0.0.1", port=port
    )
    log = (tmp_path / "log").open("wb")
    started = subprocess.Popen(command.argv, env=dict(command.env), stdout=log, stderr=log, start_new_session=True)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0, trust_env=False) as client:
            wait_healthy(client, started, tmp_path / "log")
            path, body = engine.warm_body(served_name=samples.MODEL_ID)
            answers = [client.post(path, content=body, headers={"content-type": "application/json"}) for _ in range(2)]
            signals = engine.signals(client.get(engine.metrics_path).text)
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(20)
        log.close()
    assert signals.validity is Validity.OK
    assert (signals.running, signals.waiting, signals.preemptions) == (0, 0, 0.0)
    usages = [answer.raise_for_status().json()["usage"] for answer in answers]
    assert signals.output_tokens == sum(usage["completion_tokens"] for usage in usages) > 0
    assert signals.prompt_tokens == sum(usage["prompt_tokens"] for usage in usages) > 0


def wait_healthy(client: httpx.Client, started: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + START_S
    while True:
        assert started.poll() is None, log.read_text()[-3000:]
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, log.read_text()[-3000:]
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        SYSTEM_CLOCK.sleep_blocking(0.05)

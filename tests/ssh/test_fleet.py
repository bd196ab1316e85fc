"""A whole fleet on machines of an inventory: `up` from a profile, answers through the gateway, a machine that is lost, `down`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from openai import OpenAI

from fleetctl.clock import SYSTEM_CLOCK
from tests.e2e.fleet import Home, live_replicas
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ssh.hosts import Host

pytestmark = [pytest.mark.e2e, pytest.mark.essential, pytest.mark.timeout(400)]

NAME = "inventory"
PROFILE = """
apiVersion: fleetctl/v1
name: inventory
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
emulator: {flavour: vllm, startup: 500ms, speed: 4}
provider: {kind: ssh, inventory: INVENTORY}
workload:
  peak_rps: 3
  prompt_tokens: {p50: 300, p99: 2000}
  output_tokens: {p50: 64, p99: 200}
lanes:
  all:
    slo: {ttft: {p99: 3s}, itl: {p99: 90ms}}
    max_wait: 10s
    replicas: {min: 2, max: 3}
capacity: {gpus: [L40S], max_nodes: 4}
gateway: {host: 127.0.0.1, port: PORT}
"""


@pytest.fixture
def home() -> Iterator[Home]:
    root = Path(tempfile.mkdtemp(prefix="fs-"))
    home = Home(root=root, env={})
    yield home
    home.run("down", NAME, "--yes")
    left = home.kill_everything()
    shutil.rmtree(root, ignore_errors=True)
    assert left == []


def ready(home: Home) -> dict[str, str]:
    """Return the machines of the replicas that are ready."""
    rows = live_replicas(home.status(NAME))
    return {row.record.id: row.record.zone for row in rows if row.record.state.value == "ready"}


def wait_for_two(home: Home) -> dict[str, str]:
    until_s = SYSTEM_CLOCK.monotonic_s() + 120
    while len(found := ready(home)) != 2:
        assert SYSTEM_CLOCK.monotonic_s() < until_s, found
        SYSTEM_CLOCK.sleep_blocking(0.5)
    return found


def test_a_fleet_comes_up_answers_loses_an_engine_and_goes(
    home: Home, machines: dict[str, Host], inventory: Path
) -> None:
    port = free_port()
    profile = home.root / "profile.yaml"
    profile.write_text(PROFILE.replace("INVENTORY", str(inventory)).replace("PORT", str(port)))
    up = home.run("up", str(profile), "--yes", "--timeout", "3m")
    assert up.code == 0, (up.out, up.err, home.logs())
    before = wait_for_two(home)
    assert set(before.values()) == {"gpu-a", "gpu-b"}  # a machine is a zone, and replicas keep apart

    client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=60)
    for number in range(6):
        answer = client.completions.create(
            model="meta-llama/Llama-3.1-8B-Instruct", prompt=f"Say {number}.", max_tokens=8
        )
        assert answer.choices[0].text

    for pid in machines["gpu-b"].engines():
        machines["gpu-b"].kill(pid)
    until_s = SYSTEM_CLOCK.monotonic_s() + 120
    while set(ready(home)) == set(before) or len(ready(home)) != 2:
        assert SYSTEM_CLOCK.monotonic_s() < until_s, ready(home)
        client.completions.create(model="meta-llama/Llama-3.1-8B-Instruct", prompt="Still there?", max_tokens=8)
        SYSTEM_CLOCK.sleep_blocking(0.5)

    down = home.run("down", NAME, "--yes")
    assert down.code == 0, (down.out, down.err)
    assert not [pid for host in machines.values() for pid in host.engines() if host.is_engine(pid)]

"""Replicas that share an instance: one is launched, the others are placed on it by its tags, and it goes with the last."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from openai import OpenAI

from tests.aws.cloud.client import running_cloud
from tests.aws.cloud.reaper import MARK
from tests.aws.test_fleet import MODEL, what_is_left
from tests.e2e.fleet import Home, free_port, live_replicas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.aws.cloud.client import Cloud

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.enable_socket]

PROFILE = """
apiVersion: fleetctl/v1
name: shared
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
emulator: {flavour: vllm, startup: 500ms, speed: 4}
provider: aws
workload:
  peak_rps: 2
  prompt_tokens: {p50: 300, p99: 2000}
  output_tokens: {p50: 32, p99: 100}
lanes:
  chat:
    slo: {ttft: {p99: 2s}, itl: {p99: 90ms}}
    max_wait: 10s
    replicas: {min: 3, max: 4}
    spot: all
    launch: {tensor_parallel: 2}
capacity: {gpus: [H100], max_nodes: 2, max_cost_per_hour: $60}
gateway: {host: 127.0.0.1, port: PORT}
"""
# On record of a node: its machine, and its GPUs there.
PRICE = 20.0 + 200 * 0.08 / 730  # of the instance, and of its disk by the packaged list
ALL_OF_IT = {(0, 1), (2, 3), (4, 5), (6, 7)}


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with running_cloud("--boot") as running:
        running.price("p5.48xlarge", "spot", 20.0)
        yield running


@pytest.fixture
def home(cloud: Cloud) -> Iterator[Home]:
    root = Path(tempfile.mkdtemp(prefix="fc-"))
    variables = {
        **cloud.environment,
        "FLEETCTL_AWS_IMAGE": "example.com/emulator:1",
        "FLEETCTL_AWS_GATEWAY_SOURCE": f"{cloud.facts['host']}/32",
    }
    home = Home(root=root, env=variables)
    yield home
    home.run("down", "shared", "--yes")
    left = home.kill_everything()
    shutil.rmtree(root, ignore_errors=True)
    assert left == []


def ready(home: Home) -> list[Any]:
    rows = live_replicas(home.status("shared"))
    return [row.record for row in rows if row.record.state.value == "ready"]


def engine_on(port: int, *, but: int = 0) -> psutil.Process | None:
    """Return the engine that listens on a port of an instance, another than one that was there; None: none does."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != but and str(port) in process.cmdline() and MARK in process.environ():
                return process
    return None


def caller(port: int) -> Callable[[], str]:
    """Return what asks the gateway for an answer."""
    client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=60)

    def reply() -> str:
        chat = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=8
        )
        return chat.choices[0].message.content or ""

    return reply


def test_four_replicas_are_one_instance_at_its_price_and_leave_it_one_by_one(home: Home, cloud: Cloud) -> None:
    port = free_port()
    profile = home.root / "shared.yaml"
    profile.write_text(PROFILE.replace("PORT", str(port)))
    planned = home.query("plan", str(profile))
    assert (planned["lanes"][0]["replicas"], planned["cost_usd_per_hour"]) == (4, pytest.approx(PRICE))

    home.fleetctl("up", str(profile), "--yes", timeout_s=300)
    cloud.until(lambda: len(ready(home)) == 4, "four replicas are ready", seconds=240)
    (instance,) = cloud.instances("pending", "running")
    assert {tuple(record.gpu_indices) for record in ready(home)} == ALL_OF_IT
    assert {record.machine_id for record in ready(home)} == {instance["id"]}
    assert len({(record.host, record.port) for record in ready(home)}) == 4
    cloud.until(
        lambda: home.status("shared").cost_usd_per_hour == pytest.approx(PRICE), "the instance is paid for once"
    )

    reply = caller(port)
    assert all(reply() for _ in range(8))
    four = ready(home)

    # One leaves: its slot's engine ends, and the instance, which costs what it did, stays for the others.
    home.fleetctl("scale", "chat=3", "--fleet", "shared", timeout_s=240)
    cloud.until(lambda: len(ready(home)) == 3, "one is told to go", seconds=120)
    left = {record.port for record in ready(home)}
    (freed,) = {record.port for record in four} - left
    cloud.until(lambda: engine_on(freed) is None, "its engine has ended", seconds=120)
    assert home.status("shared").cost_usd_per_hour == pytest.approx(PRICE)
    assert [each["id"] for each in cloud.instances("pending", "running")] == [instance["id"]]

    # One engine dies: it is started again in its slot, and the others serve on.
    others = ready(home)[1:]
    dying = ready(home)[0].port
    engine = engine_on(dying)
    assert engine is not None
    engine.kill()
    assert all(reply() for _ in range(8))
    cloud.until(lambda: engine_on(dying, but=engine.pid), "the engine runs again", seconds=120)
    cloud.until(lambda: len(ready(home)) >= 3, "three are ready again", seconds=120)
    assert {record.id for record in others} < {record.id for record in ready(home)}
    assert instance["id"] in {each["id"] for each in cloud.instances("pending", "running")}

    cloud.interrupt(instance["id"], notice_s=60)
    cloud.until(
        lambda: {r.machine_id for r in ready(home)}.isdisjoint({instance["id"]}) and len(ready(home)) >= 3,
        "all three have moved to another instance",
        seconds=240,
    )
    assert len(cloud.instances("running")) <= 2
    assert all(reply() for _ in range(8))

    home.fleetctl("down", "shared", "--yes", timeout_s=300)
    cloud.until(
        lambda: not cloud.instances("pending", "running", "shutting-down", "stopping", "stopped"),
        "no instance is left",
        seconds=120,
    )
    assert what_is_left(cloud) == {}

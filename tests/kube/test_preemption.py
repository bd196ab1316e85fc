"""Lanes of one fleet on GPUs that are all taken: an earlier lane's replica takes a later lane's place, by the real scheduler."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl_kubernetes.settings import LANE
from tests.e2e.fleet import Home, live_replicas
from tests.kube.live_fleet import Traffic
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NAME = "full"
NODE = "three-gpus"
PROFILE = """
apiVersion: fleetctl/v1
name: full
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
emulator: {flavour: vllm, startup: 500ms, speed: 4}
provider: {kind: kubernetes, namespace: full, image: "tests/emulator:1"}
workload: {peak_rps: 1, prompt_tokens: {p50: 300, p99: 2000}, output_tokens: {p50: 64, p99: 200}}
lanes:
  short:
    match: {uncached_prompt_tokens: "< 512"}
    slo: {ttft: {p99: 2s}}
    max_wait: 30s
    replicas: {min: 1, max: 2}
  long:
    slo: {ttft: {p99: 4s}}
    max_wait: 30s
    replicas: {min: 1, max: 2}
  batch:
    match: {batch: true}
    slo: {e2e: {p99: 120s}}
    max_wait: 60s
    replicas: {min: 1, max: 1}
    interruptible: true
    spot: none
capacity: {gpus: [H100], max_nodes: 6}
control: {drain_timeout: 20s}
gateway: {host: 127.0.0.1, port: PORT}
"""


@pytest.fixture
def home(cluster: TestCluster) -> Iterator[Home]:
    root = Path(tempfile.mkdtemp(prefix="fc-"))
    cluster.namespace(NAME)
    # Emulated engines ask for no GPU: as many pods as the node has GPUs make it full.
    product = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    cluster.node(NODE, gpus=3, pods=3, zone="zone-full", labels=product)
    home = Home(root=root, env={"KUBECONFIG": str(cluster.kubeconfig)})
    yield home
    home.run("down", NAME, "--yes")
    cluster.core.delete_collection_namespaced_pod(NAME, grace_period_seconds=0)
    cluster.core.delete_namespace(NAME)
    cluster.core.delete_node(NODE)
    left = home.kill_everything()
    shutil.rmtree(root, ignore_errors=True)
    assert left == []


def ready(home: Home, lane: str) -> set[str]:
    rows = live_replicas(home.status(NAME))
    return {row.record.id for row in rows if row.record.lane == lane and row.record.state.value == "ready"}


def pods_made(cluster: TestCluster) -> set[tuple[str, str]]:
    """Return the pods that are there, each with its lane."""
    items = cluster.core.list_namespaced_pod(NAME).items
    return {(each.metadata.labels[LANE], each.metadata.uid) for each in items}


def test_a_lane_takes_the_place_of_one_that_may_be_interrupted_and_gives_it_back(
    cluster: TestCluster, home: Home, tmp_path: Path
) -> None:
    port = free_port()
    profile = tmp_path / "full.yaml"
    profile.write_text(PROFILE.replace("PORT", str(port)))
    home.fleetctl("up", str(profile), "--yes", timeout_s=150)
    assert [len(ready(home, lane)) for lane in ("short", "long", "batch")] == [1, 1, 1]
    (batch,), first = ready(home, "batch"), ready(home, "short")

    lanes = [Traffic(port, lane=lane, clients=1) for lane in ("short", "long", "batch")]
    with lanes[0] as short, lanes[1] as long, lanes[2] as last:
        until(lambda: min(short.answered, long.answered, last.answered) >= 5, "every lane is answered")
        home.fleetctl("scale", "short=2", "--fleet", NAME)
        until(lambda: len(ready(home, "short")) == 2, f"the second of short serves\n{home.logs()}", within_s=150)
        taken = ready(home, "short") - first
        assert ready(home, "batch") == set()
        assert len(ready(home, "long")) == 1
        made = pods_made(cluster)
        answered = (short.answered, long.answered)
        SYSTEM_CLOCK.sleep_blocking(5.0)
        assert pods_made(cluster) == made, "nobody fights for the place"
        until(lambda: short.answered > answered[0] and long.answered > answered[1], "requests are answered")
        explained = home.run("why", batch, "--fleet", NAME).out
        shown = home.run("status", NAME).out
        home.fleetctl("scale", "short=1", "--fleet", NAME)
        until(lambda: len(ready(home, "batch")) == 1, f"batch has its place again\n{home.logs()}", within_s=150)
        answered_of_batch = last.answered
        until(lambda: last.answered > answered_of_batch, "batch is answered again", within_s=60)
    assert (short.failures, long.failures) == ([], [])
    assert last.failures == []
    (taker,) = taken
    assert "the provider gives preemption notice in" in explained
    assert f"by {taker} of lane short" in explained
    assert f"preempted by {taker} of lane short" in shown
    assert "a replica of batch is preempted for it" in home.run("why", taker, "--fleet", NAME).out

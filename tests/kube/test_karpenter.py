"""A fleet on a cluster whose GPU nodes Karpenter brings: from none, spot first, on demand where spot is used up."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleetctl.plugins import load_engine
from fleetctl.render.kubernetes import render_kubernetes
from tests.e2e.fleet import Home, live_replicas
from tests.kube.cluster import remove_namespaces
from tests.kube.karpenter import LABEL, brought, delete, listed, node_pool, running_karpenter
from tests.kube.live_fleet import Traffic
from tests.kube.test_render import kubectl
from tests.ports import free_port
from tests.render import fleets
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NAMESPACE = "brought"
PROFILE = """
apiVersion: fleetctl/v1
name: brought
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
emulator: {flavour: vllm, startup: 500ms, speed: 4}
provider: {kind: kubernetes, namespace: brought, image: "tests/emulator:1"}
workload: {peak_rps: 1, prompt_tokens: {p50: 300, p99: 2000}, output_tokens: {p50: 64, p99: 200}}
lanes:
  short:
    slo: {ttft: {p99: 2s}}
    max_wait: 60s
    replicas: {min: 1, max: 4}
    spot: all
capacity: {gpus: [H100], max_nodes: 6}
gateway: {host: 127.0.0.1, port: PORT}
"""


@pytest.fixture
def home(cluster: TestCluster) -> Iterator[Home]:
    root = Path(tempfile.mkdtemp(prefix="fc-"))
    cluster.namespace(NAMESPACE)
    home = Home(root=root, env={"KUBECONFIG": str(cluster.kubeconfig)})
    with running_karpenter(cluster):
        yield home
        home.run("down", "brought", "--yes")
        cluster.core.delete_collection_namespaced_pod(NAMESPACE, grace_period_seconds=0)
    cluster.core.delete_namespace(NAMESPACE)
    left = home.kill_everything()
    shutil.rmtree(root, ignore_errors=True)
    assert left == []


def ready(home: Home) -> dict[str, str]:
    """Return the replicas that are ready, each with its offering."""
    rows = live_replicas(home.status("brought"))
    return {row.record.id: row.record.offering for row in rows if row.record.state.value == "ready"}


def test_karpenter_brings_the_nodes_that_a_lane_needs_and_takes_them_again(
    cluster: TestCluster, home: Home, tmp_path: Path
) -> None:
    node_pool(cluster, "cheap", "spot", nodes_max=1)
    node_pool(cluster, "sure", "on-demand")
    assert brought(cluster) == {}
    port = free_port()
    profile = tmp_path / "brought.yaml"
    profile.write_text(PROFILE.replace("PORT", str(port)))
    home.fleetctl("up", str(profile), "--yes", timeout_s=150)
    assert "spot" in brought(cluster).values()

    # Spot is used up by its pool's limit: what is more comes on demand.
    home.fleetctl("scale", "short=2", "--fleet", "brought")
    until(lambda: len(ready(home)) == 2, f"two are ready\n{home.logs()}", within_s=180)
    until(lambda: Counter(brought(cluster).values()) == {"spot": 1, "on-demand": 1}, "one of each", within_s=60)

    # A node that is disrupted drains, and another comes in its stead, while requests are answered.
    with Traffic(port) as traffic:
        until(lambda: traffic.answered >= 5, "requests are answered")
        before = ready(home)
        claims = listed(cluster, "nodeclaims")
        (spot,) = (each for each in claims if each["metadata"]["labels"]["karpenter.sh/capacity-type"] == "spot")
        delete(cluster, "nodeclaims", spot["metadata"]["name"])
        until(lambda: spot["status"]["nodeName"] not in brought(cluster), "the node has gone", within_s=120)
        until(lambda: len(ready(home)) == 2 and ready(home) != before, "it is replaced", within_s=180)
        answered = traffic.answered
        until(lambda: traffic.answered > answered + 5, "requests are answered")
    assert traffic.failures == []

    # An idle node goes: with its replica's pod there is nothing on it any more.
    home.fleetctl("scale", "short=1", "--fleet", "brought")
    until(lambda: len(brought(cluster)) == 1, "an idle node has gone", within_s=180)
    home.fleetctl("down", "brought", "--yes", timeout_s=120)
    assert cluster.names(NAMESPACE) == []


# The first and the last but one of a rendered pod's alternatives: Karpenter tries one after the other.
@pytest.mark.parametrize("label", [LABEL, ("karpenter.k8s.aws/instance-gpu-name", "h100")])
def test_karpenter_brings_nodes_for_a_rendered_lane_by_any_label_that_its_pools_have(
    cluster: TestCluster, tmp_path: Path, label: tuple[str, str]
) -> None:
    lane = (fleets.lane("short", "vllm"), fleets.lane_plan("short", "vllm", tensor_parallel=1))
    files = render_kubernetes(*fleets.fleet(lane), load_engine)
    with running_karpenter(cluster):
        for name, market in (("cheap", "spot"), ("sure", "on-demand")):
            node_pool(cluster, name, market, label=label)
        namespace = cluster.namespace(f"rendered-{label[1].lower()}")
        try:
            for path in ("kubernetes/priority-classes.yaml", "kubernetes/short.yaml"):
                (tmp_path / "objects.yaml").write_text(files[path])
                ran = kubectl(cluster, "apply", "--server-side", "-n", namespace, "-f", str(tmp_path / "objects.yaml"))
                assert ran.returncode == 0, ran.stderr
            until(lambda: Counter(brought(cluster).values()) == {"spot": 2, "on-demand": 1}, "each pod has a node")
        finally:
            remove_namespaces(cluster, namespace)

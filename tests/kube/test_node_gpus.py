"""Nodes as clouds label and taint them: what is offered of their GPUs, where the scheduler puts pods, what commands say of the rest."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.model.node import NodeState
from fleetctl.model.preflight import PlannedNodes, Verdict
from fleetctl.testing.orders import create
from tests.e2e.fleet import Home
from tests.kube.test_provider import Space, described, order
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.node import Node
    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

PRODUCT = "nvidia.com/gpu.product"
MI300X = "AMD_Instinct_MI300X_OAM"
H100, H200 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200"
THEIRS = {"key": "team", "value": "vision", "effect": "NoSchedule"}
NAME = "whole"
PROFILE = """
apiVersion: fleetctl/v1
name: whole
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
emulator: {flavour: vllm, startup: 200ms, speed: 8}
provider: {kind: kubernetes, namespace: whole, image: "tests/emulator:1"}
workload: {peak_rps: 1, prompt_tokens: {p50: 300, p99: 2000}, output_tokens: {p50: 64, p99: 200}}
lanes:
  short:
    slo: {ttft: {p99: 2s}}
    max_wait: 30s
    replicas: {min: 1, max: 1}
capacity: {gpus: [GPU], max_nodes: 2}
gateway: {host: 127.0.0.1, port: PORT}
"""


class Nodes:
    """Nodes of a test's own, with labels in place of the tests' usual ones, and taints."""

    def __init__(self, cluster: TestCluster) -> None:
        self._cluster = cluster
        self._names: list[str] = []

    def add(
        self, name: str, labels: dict[str, str], *taints: dict[str, str], gpus: int = 8, zone: str = "zone-g"
    ) -> None:
        self._names.append(name)
        self._cluster.node(name, gpus=gpus, zone=zone)
        shown: dict[str, str | None] = {PRODUCT: None, **labels}
        self._cluster.core.patch_node(name, {"metadata": {"labels": shown}, "spec": {"taints": [*taints]}})

    def remove(self) -> None:
        for each in self._names:
            self._cluster.core.delete_node(each)


@pytest.fixture
def nodes(cluster: TestCluster) -> Iterator[Nodes]:
    made = Nodes(cluster)
    yield made
    made.remove()


@pytest.fixture
def space(cluster: TestCluster, request: pytest.FixtureRequest) -> Iterator[Space]:
    name = cluster.namespace(f"g{abs(hash(request.node.nodeid)) % 10**8}")
    yield Space(cluster, name)
    cluster.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
    cluster.core.delete_namespace(name)


def runs(node: Node) -> bool:
    return node.state is NodeState.RUNNING


def test_a_pod_runs_on_a_node_that_only_a_cloud_labels(space: Space, nodes: Nodes) -> None:
    nodes.add("gke", {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, gpus=2)
    nodes.add("eks", {"node.kubernetes.io/instance-type": "p5.48xlarge"})
    nodes.add(
        "aks",
        {"node.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5", "kubernetes.azure.com/accelerator": "nvidia"},
        {"key": "sku", "value": "gpu", "effect": "NoSchedule"},
    )
    expected = {
        "2xnvidia-h100-80gb/zone-g/on-demand": "gke",
        "8xp5.48xlarge/zone-g/on-demand": "eks",
        "8xStandard_ND96isr_H100_v5/zone-g/on-demand": "aks",
    }

    async def scenario() -> None:
        provider = await space.prepared()
        sold = {each.key: each for each in await provider.offerings()}
        for number, (key, machine) in enumerate(expected.items()):
            assert sold[key].gpu == "H100"
            token = f"t-{number}"
            wanted = order(token, replica_id=f"r{number}", gpu_count=sold[key].gpu_count, offering=key)
            await create(provider, wanted)
            await described(provider, token, runs, f"it runs on {machine}")
            assert space.pod(token).spec.node_name == machine
        # What each label names is a kind of its own to the scheduler, and the same GPU to a plan: all of them count.
        assert provider.capabilities.preflight is not None
        planned = [
            PlannedNodes(offering=sold[key], count=1, to_create=1, gpu_count=sold[key].gpu_count) for key in expected
        ]
        for nodes_of in (tuple(planned), (planned[1],)):
            found = {each.name: each for each in await provider.capabilities.preflight.findings(nodes_of)}
            there = sum(each.offering.gpu_count for each in planned)
            taken = sum(each.gpu_count for each in nodes_of)
            assert (found["GPUs"].verdict, found["GPUs"].detail) == (
                Verdict.OK, f"the plan takes {taken} of {there} H100"
            )  # fmt: skip

    asyncio.run(scenario())


def test_a_pod_runs_on_a_node_with_gpus_of_amd(cluster: TestCluster, space: Space) -> None:
    labels = {"amd.com/gpu.product-name": MI300X, "amd.com/gpu.compute-memory-partition": "spx_nps1"}
    key = f"4x{MI300X}/zone-m/on-demand"

    async def scenario() -> None:
        provider = await space.prepared()
        sold = {each.key: each for each in await provider.offerings()}
        assert sold[key].gpu == "MI300X"
        await create(provider, order("t-1", gpu_count=4, offering=key))
        await described(provider, "t-1", runs, "it runs where AMD's device plugin counts GPUs")
        pod = space.pod("t-1").spec
        assert (pod.node_name, pod.containers[0].resources.limits) == ("amd", {"amd.com/gpu": "4"})

    cluster.node("amd", zone="zone-m", labels=labels, resource="amd.com/gpu")
    try:
        cluster.core.patch_node("amd", {"metadata": {"labels": {PRODUCT: None}}})
        asyncio.run(scenario())
    finally:
        cluster.core.delete_node("amd")


def test_the_scheduler_keeps_pods_off_shared_gpus_that_discovery_calls_by_the_whole_ones_name(
    space: Space, nodes: Nodes
) -> None:
    shared = {PRODUCT: H100, "nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}
    nodes.add("shared", shared, gpus=32)
    nodes.add("slices", {PRODUCT: f"{H100}-MIG-1g.10gb", "nvidia.com/gpu.slices.gi": "1"}, gpus=56)
    key = f"1x{H100}/zone-g/on-demand"

    def is_refused(token: str) -> bool:
        conditions = space.pod(token).status.conditions or []
        return any(each.reason == "Unschedulable" for each in conditions)

    async def scenario() -> None:
        provider = await space.prepared()
        assert not [each for each in await provider.offerings() if each.gpu == "H100"]
        await create(provider, order("t-1", gpu_count=1, offering=key))
        until(lambda: is_refused("t-1"), "no node has room for it")
        nodes.add("really", {PRODUCT: H100}, gpus=1)
        await described(provider, "t-1", runs, "it runs where the GPU is whole")
        assert space.pod("t-1").spec.node_name == "really"

    asyncio.run(scenario())


@pytest.fixture
def home(cluster: TestCluster, nodes: Nodes) -> Iterator[Home]:
    root = Path(tempfile.mkdtemp(prefix="fc-"))
    cluster.namespace(NAME)
    nodes.add("ours", {PRODUCT: H100}, gpus=1)
    nodes.add("theirs", {PRODUCT: H200}, THEIRS, gpus=8)
    nodes.add("slices", {PRODUCT: f"{H100}-MIG-1g.10gb"}, gpus=7)
    home = Home(root=root, env={"KUBECONFIG": str(cluster.kubeconfig)})
    yield home
    home.run("down", NAME, "--yes")
    cluster.core.delete_collection_namespaced_pod(NAME, grace_period_seconds=0)
    cluster.core.delete_namespace(NAME)
    left = home.kill_everything()
    shutil.rmtree(root, ignore_errors=True)
    assert left == []


def test_plan_doctor_and_status_say_how_many_gpus_are_left_out_and_why(home: Home, tmp_path: Path) -> None:
    def profile(gpu: str) -> str:
        path = tmp_path / f"{gpu}.yaml"
        path.write_text(PROFILE.replace("GPU]", f"{gpu}]").replace("PORT", str(free_port())))
        return str(path)

    tainted = "8 GPUs are not planned with: of nodes with the taint team=vision:NoSchedule"
    sliced = f"7 MIG slices are not planned with: of {H100}-MIG-1g.10gb"

    def shown(*words: str) -> Any:
        ran = home.run(*words)
        return ran.out + ran.err

    in_vain = home.run("plan", profile("H200"))
    assert in_vain.code != 0
    assert tainted in _joined(in_vain.out + in_vain.err)
    ours = profile("H100")
    for words in (("plan", ours), ("doctor", ours), ("offers", ours)):
        text = _joined(shown(*words))
        assert tainted in text, words
        assert sliced in text, words
    home.fleetctl("up", ours, "--yes", timeout_s=120)
    until(lambda: tainted in _joined(shown("status", NAME)), "status says it", within_s=60)


def _joined(text: str) -> str:
    return " ".join(text.replace("│", " ").split())

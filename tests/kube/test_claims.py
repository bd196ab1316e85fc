"""GPUs by DRA: offered by what ResourceSlices show, claimed by each pod, allocated by the real scheduler."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from fleetctl.model.node import NodeState
from fleetctl.model.preflight import PlannedNodes, Verdict
from fleetctl.testing.orders import create, listed
from fleetctl_kubernetes.provider import KubernetesProvider
from fleetctl_kubernetes.settings import pod_name
from tests.kube.test_provider import FLEET, OWNER, Space, described, order
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

DRIVER = "gpu.nvidia.com"
NODE = "with-slices"
PRODUCT = "NVIDIA H200 NVL"
LABEL = "NVIDIA-H200-NVL"
TWO = f"2x{LABEL}/zone-d/on-demand"


@pytest.fixture(scope="module")
def with_slices(cluster: TestCluster) -> Iterator[TestCluster]:
    """A cluster with a node of which only ResourceSlices show the GPUs, as NVIDIA's driver publishes them."""
    api = client.ResourceV1Api(cluster.api)
    expression = f'device.driver == "{DRIVER}"'
    api.create_device_class(
        {"metadata": {"name": DRIVER}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    )
    cluster.node(NODE, gpus=0, zone="zone-d")
    whole = [device(f"gpu-{number}", "gpu", PRODUCT) for number in range(4)]
    other = [device("gpu-9", "gpu", "NVIDIA T4"), device("gpu-0-mig-1", "mig", PRODUCT)]
    pool = {"name": NODE, "generation": 2, "resourceSliceCount": 1}
    for name, generation, devices in (("old", 1, [device("gpu-8", "gpu", PRODUCT)]), ("new", 2, [*whole, *other])):
        spec = {"driver": DRIVER, "nodeName": NODE, "pool": {**pool, "generation": generation}, "devices": devices}
        api.create_resource_slice({"metadata": {"name": f"{NODE}-{name}"}, "spec": spec})
    yield cluster
    for name in ("old", "new"):
        api.delete_resource_slice(f"{NODE}-{name}")
    api.delete_device_class(DRIVER)
    cluster.core.delete_node(NODE)


def device(name: str, kind: str, product: str) -> dict[str, Any]:
    attributes = {"type": {"string": kind}, "productName": {"string": product}, "uuid": {"string": f"GPU-{name}"}}
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": "141Gi"}}}


@pytest.fixture
def space(with_slices: TestCluster, request: pytest.FixtureRequest) -> Iterator[Space]:
    name = with_slices.namespace(f"d{abs(hash(request.node.nodeid)) % 10**8}")
    yield Space(with_slices, name)
    with_slices.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
    with_slices.core.delete_namespace(name)


def at(space: Space, **changes: Any) -> KubernetesProvider:
    return KubernetesProvider(settings=replace(space.settings, **changes))


def claims(space: Space) -> list[Any]:
    return list(client.ResourceV1Api(space.cluster.api).list_namespaced_resource_claim(space.name).items)


def allocated(space: Space) -> list[str]:
    """Return the GPUs that pods have, by the scheduler."""
    found = [each.status.allocation for each in claims(space) if each.status and each.status.allocation]
    return sorted(result.device for each in found for result in each.devices.results)


def test_what_only_slices_show_is_offered_beside_what_the_device_plugin_shows(space: Space) -> None:
    def sold(**settings: Any) -> dict[str, int | None]:
        found = asyncio.run(at(space, **settings).offerings())
        return {each.key: each.pool_gpus for each in found if "L40S" in each.key or "zone-d" in each.key}

    both = sold()
    assert {key: gpus for key, gpus in both.items() if "zone-d" in key} == {
        "1xNVIDIA-T4/zone-d/on-demand": 1,
        **{f"{count}x{LABEL}/zone-d/on-demand": 4 for count in (1, 2, 4)},
    }
    assert any("L40S" in key for key in both)
    assert not any("zone-d" in key for key in sold(gpu_requests="device-plugin"))
    assert not any("L40S" in key for key in sold(gpu_requests="dra"))


def test_each_pod_claims_its_own_gpus_and_gives_them_back(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        for number in (1, 2, 3):
            wanted = order(f"t-{number}", replica_id=f"r{number}", offering=TWO, gpu_count=2)
            await create(provider, wanted)
        for number in (1, 2):
            await described(provider, f"t-{number}", lambda node: node.state is NodeState.RUNNING, "it runs")
        assert space.pod("t-1").spec.node_name == NODE
        assert allocated(space) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
        waiting = await described(provider, "t-3", lambda node: bool(node.pending_reason), "no GPU is left for it")
        assert "Unschedulable" in waiting.pending_reason
        await provider.stop(pod_name(OWNER, "t-1"), grace_s=1)
        await described(provider, "t-3", lambda node: node.state is NodeState.RUNNING, "it has those of another")
        assert allocated(space) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
        for number in (2, 3):
            await provider.stop(pod_name(OWNER, f"t-{number}"), grace_s=1)
        for resource in reversed(provider.needed(owner=OWNER, fleet=FLEET)):
            await provider.teardown(resource)
        until(lambda: not claims(space), "no claim is left")
        api = client.ResourceV1Api(space.cluster.api)
        until(lambda: not api.list_namespaced_resource_claim_template(space.name).items, "no template is left")

    asyncio.run(scenario())


def test_a_provider_that_was_asked_for_no_offerings_knows_what_is_claimed(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("t-1", offering=TWO, gpu_count=2))
        await create(provider, order("t-2", replica_id="r2", offering="1xNVIDIA-L40S/zone-a/spot", gpu_count=1))
        assert len(await listed(provider, owner=OWNER, fleet=FLEET)) == 2

    asyncio.run(scenario())
    assert space.pod("t-1").spec.resource_claims
    assert not space.pod("t-2").spec.resource_claims
    assert space.pod("t-2").spec.containers[0].resources.limits == {"nvidia.com/gpu": "1"}


def test_a_preflight_says_whether_gpus_can_be_claimed(space: Space) -> None:
    async def finding(provider: KubernetesProvider) -> Verdict | None:
        assert provider.capabilities.preflight is not None
        sold = next(each for each in await space.provider().offerings() if each.key == TWO)
        planned = PlannedNodes(offering=sold, count=1, to_create=1, gpu_count=2)
        found = await provider.capabilities.preflight.findings((planned,))
        return next((each.verdict for each in found if each.name == "DRA"), None)

    assert asyncio.run(finding(space.provider())) is Verdict.OK
    assert asyncio.run(finding(at(space, gpu_requests="device-plugin"))) is None
    api = client.ResourceV1Api(space.cluster.api)
    kept = api.read_device_class(DRIVER)
    api.delete_device_class(DRIVER)
    try:
        assert asyncio.run(finding(space.provider())) is Verdict.FAIL
    finally:
        api.create_device_class({"metadata": {"name": DRIVER}, "spec": kept.spec})

"""What stands around a lane's pods: there with them, kept as it should be, gone with them, and nobody else's."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.node import NodeState
from fleetctl.testing.orders import create, listed
from fleetctl_kubernetes.manifest import OWN_ADDRESS
from fleetctl_kubernetes.settings import lane_name, pod_name
from tests.kube.test_provider import FLEET, OWNER, Space, order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl_kubernetes.provider import KubernetesProvider
    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

LANE = "short"
NAME = lane_name(OWNER, FLEET, LANE)
LISTENS = ("python3", "-m", "http.server", "8000", "--bind", OWN_ADDRESS)


@pytest.fixture
def space(cluster: TestCluster, request: pytest.FixtureRequest) -> Iterator[Space]:
    name = cluster.namespace(f"l{abs(hash(request.node.nodeid)) % 10**8}")
    yield Space(cluster, name)
    cluster.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
    cluster.core.delete_namespace(name)


async def keeps(provider: KubernetesProvider, is_so: Callable[[], object], what: str) -> None:
    """List as a controller does until something is so."""
    end_s = SYSTEM_CLOCK.monotonic_s() + 150.0
    while not is_so():
        assert SYSTEM_CLOCK.monotonic_s() < end_s, f"not so: {what}"
        await listed(provider, owner=OWNER, fleet=FLEET)
        await SYSTEM_CLOCK.sleep(0.3)


def has(space: Space) -> set[str]:
    """Return which of the lane's two objects are there."""
    services = space.cluster.core.list_namespaced_service(space.name).items
    budgets = space.policy.list_namespaced_pod_disruption_budget(space.name).items
    found = [("Service", each) for each in services] + [("PodDisruptionBudget", each) for each in budgets]
    return {kind for kind, each in found if each.metadata.name == NAME}


def allowed(space: Space) -> int | None:
    """Return how many pods may be evicted by the disruption controller's own count; None: it has not counted."""
    if "PodDisruptionBudget" not in has(space):
        return None
    budget = space.policy.read_namespaced_pod_disruption_budget(NAME, space.name)
    is_counted = budget.status.observed_generation == budget.metadata.generation and budget.status.expected_pods == 3
    return int(budget.status.disruptions_allowed) if is_counted else None


def addresses(space: Space) -> set[str]:
    slices = client.DiscoveryV1Api(space.cluster.api).list_namespaced_endpoint_slice(
        space.name, label_selector=f"kubernetes.io/service-name={NAME}"
    )
    ready = [each for piece in slices.items for each in piece.endpoints or () if each.conditions.ready]
    return {address for each in ready for address in each.addresses}


def test_a_lanes_pods_are_behind_its_service_and_evicted_one_at_a_time(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        for number in (1, 2, 3):
            await create(provider, order(f"t-{number}", replica_id=f"r{number}", lane=LANE, argv=LISTENS))
        await keeps(provider, lambda: allowed(space) == 1, "one of the three may be evicted")
        nodes = await listed(provider, owner=OWNER, fleet=FLEET)
        await keeps(provider, lambda: addresses(space) == {node.host for node in nodes}, "all are behind the Service")

        def evict(token: str) -> None:
            name = pod_name(OWNER, token)
            space.cluster.core.create_namespaced_pod_eviction(name, space.name, {"metadata": {"name": name}})

        evict("t-1")
        with pytest.raises(ApiException) as refused:
            evict("t-2")
        assert refused.value.status == 429
        assert "disruption budget" in refused.value.body

    asyncio.run(scenario())


def test_what_somebody_edits_or_deletes_is_set_back_and_who_it_was_is_logged(
    space: Space, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="fleetctl_kubernetes")
    core = space.cluster.core

    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("t-1", lane=LANE))
        await keeps(provider, lambda: len(has(space)) == 2, "both are there")
        edit = {"spec": {"minAvailable": 7}}
        space.policy.patch_namespaced_pod_disruption_budget(NAME, space.name, edit, field_manager="somebody")
        core.delete_namespaced_service(NAME, space.name)

        def floor() -> object:
            return space.policy.read_namespaced_pod_disruption_budget(NAME, space.name).spec.min_available

        await keeps(provider, lambda: floor() == 0 and len(has(space)) == 2, "both are as they were")

    asyncio.run(scenario())
    assert f"PodDisruptionBudget {NAME} was changed" in caplog.text
    assert '"somebody"' in caplog.text


def test_the_objects_of_a_lane_go_with_its_last_pod_and_a_strangers_stay(space: Space) -> None:
    core = space.cluster.core
    core.create_namespaced_service(space.name, {"metadata": {"name": "theirs"}, "spec": {"ports": [{"port": 80}]}})

    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("t-1", lane=LANE))
        await keeps(provider, lambda: len(has(space)) == 2, "both are there")
        await provider.stop(pod_name(OWNER, "t-1"), grace_s=1)
        await keeps(provider, lambda: not has(space), "both have gone")

    asyncio.run(scenario())
    assert [each.metadata.name for each in core.list_namespaced_service(space.name).items] == ["theirs"]


def test_a_strangers_service_of_our_name_is_refused_and_left_as_it_is(space: Space) -> None:
    core = space.cluster.core
    core.create_namespaced_service(space.name, {"metadata": {"name": NAME}, "spec": {"ports": [{"port": 81}]}})
    before = core.read_namespaced_service(NAME, space.name).metadata.resource_version

    async def scenario() -> None:
        provider = await space.prepared()
        with pytest.raises(Exception, match=f"Service {NAME} in {space.name} is somebody else's"):
            await create(provider, order("t-1", lane=LANE))
        assert await listed(provider, owner=OWNER, fleet=FLEET) == ()
        for resource in reversed(provider.needed(owner=OWNER, fleet=FLEET)):
            await provider.teardown(resource)

    asyncio.run(scenario())
    assert core.read_namespaced_service(NAME, space.name).metadata.resource_version == before
    # One that was made after the pods: it is left, and the pods are listed all the same.

    async def later() -> None:
        core.delete_namespaced_service(NAME, space.name)
        provider = await space.prepared()
        await create(provider, order("t-2", lane=LANE))
        core.create_namespaced_service(space.name, {"metadata": {"name": NAME}, "spec": {"ports": [{"port": 82}]}})
        (node,) = await listed(provider, owner=OWNER, fleet=FLEET)
        assert node.state in (NodeState.STARTING, NodeState.RUNNING)

    asyncio.run(later())
    assert core.read_namespaced_service(NAME, space.name).spec.ports[0].port == 82


def test_who_only_lists_writes_nothing_and_who_watches_does(space: Space) -> None:
    async def scenario() -> None:
        keeper = await space.prepared()
        await create(keeper, order("t-1", lane=LANE))
        await listed(space.provider(), owner=OWNER, fleet=FLEET)
        assert has(space) == set()
        # A controller that was started again has made no pod yet.
        again = space.provider()
        assert again.capabilities.events is not None
        changes = again.capabilities.events.watch(owner=OWNER, fleet=FLEET)
        first = asyncio.ensure_future(anext(aiter(changes)))
        await keeps(again, lambda: len(has(space)) == 2, "both are there")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(scenario())

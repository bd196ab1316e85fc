"""What stands around a lane's pods: there with them, kept as it should be, gone with them, and nobody else's."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.node import NodeState
from fleetctl.testing.orders import create, listed
from fleetctl_kubernetes.manifest import OWN_ADDRESS
from fleetctl_kubernetes.settings import EPOCH, LANE as LABEL, REPLICA, lane_name, pod_name
from tests.kube.fault_proxy import Fault
from tests.kube.test_faults import behind_a_proxy
from tests.kube.test_provider import FLEET, OWNER, Space, order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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


def wants(provider: KubernetesProvider, count: int, *, epoch: int = 1) -> None:
    """Say as a controller does how many replicas the lane is to have."""
    assert provider.capabilities.targets is not None
    provider.capabilities.targets.note_targets(owner=OWNER, fleet=FLEET, wanted={LANE: count}, moved={}, epoch=epoch)


def floor(space: Space, name: str = NAME) -> int:
    return int(space.policy.read_namespaced_pod_disruption_budget(name, space.name).spec.min_available)


def epochs(space: Space) -> list[str]:
    """Return of which controller's lease each of the lane's objects that are there says to be."""
    services = space.cluster.core.list_namespaced_service(space.name).items
    budgets = space.policy.list_namespaced_pod_disruption_budget(space.name).items
    return [each.metadata.annotations[EPOCH] for each in (*services, *budgets) if each.metadata.name == NAME]


def evict(space: Space, token: str) -> None:
    name = pod_name(OWNER, token)
    space.cluster.core.create_namespaced_pod_eviction(name, space.name, {"metadata": {"name": name}})


def held(space: Space, token: str) -> bool:
    """Try to evict a pod; return whether its lane's budget holds it."""
    try:
        evict(space, token)
    except ApiException as refused:
        if refused.status != 429 or "disruption budget" not in refused.body:
            raise
        return True
    return False


def is_there(space: Space, token: str) -> bool:
    return pod_name(OWNER, token) in space.cluster.names(space.name)


def addresses(space: Space, name: str = NAME) -> set[str]:
    slices = client.DiscoveryV1Api(space.cluster.api).list_namespaced_endpoint_slice(
        space.name, label_selector=f"kubernetes.io/service-name={name}"
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

        evict(space, "t-1")
        assert held(space, "t-2")

    asyncio.run(scenario())


def test_who_drains_a_lane_waits_for_substitutes_however_many_are_left(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        for number in (1, 2, 3):
            await create(provider, order(f"t-{number}", replica_id=f"r{number}", lane=LANE, argv=LISTENS))
        wants(provider, 3)
        await keeps(provider, lambda: allowed(space) == 1, "one of the three may be evicted")
        evict(space, "t-1")
        await keeps(provider, lambda: not is_there(space, "t-1"), "the first has gone")
        for _ in range(20):  # the listings of some six seconds, which show two
            await listed(provider, owner=OWNER, fleet=FLEET)
            assert held(space, "t-2")
            await SYSTEM_CLOCK.sleep(0.3)
        # Another controller finds the budget as it is, and lowers nothing by what it sees before it has decided.
        again = space.provider()
        assert again.capabilities.events is not None
        first = asyncio.ensure_future(anext(aiter(again.capabilities.events.watch(owner=OWNER, fleet=FLEET))))
        await keeps(again, first.done, "it watches")
        await listed(again, owner=OWNER, fleet=FLEET)
        assert floor(space) == 2
        assert held(space, "t-2")
        wants(again, 3)
        await create(again, order("t-4", replica_id="r4", lane=LANE, argv=LISTENS))
        await keeps(again, lambda: allowed(space) == 1, "the substitute is ready")
        assert not held(space, "t-2")
        assert held(space, "t-3")

    asyncio.run(scenario())


def test_a_pod_follows_its_replica_to_the_lane_that_it_serves_and_back(space: Space) -> None:
    def behind(lane: str) -> set[str]:
        return addresses(space, lane_name(OWNER, FLEET, lane))

    async def scenario() -> None:
        provider = await space.prepared()
        for number, lane in ((1, LANE), (2, LANE), (3, "long")):
            await create(provider, order(f"t-{number}", replica_id=f"r{number}", lane=lane, argv=LISTENS))
        assert provider.capabilities.targets is not None
        at: dict[str, str] = {}

        def are_reached(**lanes: set[str]) -> bool:
            return all(behind(lane) == {at[each] for each in replicas} for lane, replicas in lanes.items())

        async def assigned(moved: dict[str, str], **lanes: set[str]) -> None:
            assert provider.capabilities.targets is not None
            wanted = {lane: len(replicas) for lane, replicas in lanes.items()}
            provider.capabilities.targets.note_targets(owner=OWNER, fleet=FLEET, wanted=wanted, moved=moved, epoch=1)
            await keeps(provider, lambda: are_reached(**lanes), f"{moved}: each lane's Service leads to its own")
            await keeps(provider, lambda: are_guarded(wanted), f"{moved}: each lane's budget counts its own")

        def are_guarded(wanted: dict[str, int]) -> bool:
            return all(
                floor(space, lane_name(OWNER, FLEET, lane)) == count - 1 for lane, count in wanted.items() if count
            )

        def have_addresses() -> bool:
            pods = space.cluster.core.list_namespaced_pod(space.name).items
            at.update({each.metadata.labels[REPLICA]: each.status.pod_ip for each in pods if each.status.pod_ip})
            return len(at) == 3

        await keeps(provider, have_addresses, "all run")
        await assigned({}, short={"r1", "r2"}, long={"r3"})
        await assigned({"r2": "long"}, short={"r1"}, long={"r2", "r3"})
        await assigned({"r2": "batch"}, short={"r1"}, long={"r3"}, batch={"r2"})  # which has no pod of its own
        await assigned({}, short={"r1", "r2"}, long={"r3"}, batch=set())
        listing = await provider.list_nodes(owner=OWNER, fleet=FLEET)
        assert [each for each in listing.warnings if "was changed" in each] == []
        # Somebody's own idea of a lane is none of ours.
        edit = {"metadata": {"labels": {LABEL: "another"}}}
        space.cluster.core.patch_namespaced_pod(pod_name(OWNER, "t-1"), space.name, edit)
        await keeps(provider, lambda: are_reached(short={"r1", "r2"}), "it is set back")
        listing = await provider.list_nodes(owner=OWNER, fleet=FLEET)
        assert [each for each in listing.warnings if "was changed" in each] != []

    asyncio.run(scenario())


def test_a_pod_is_left_in_the_lane_that_a_newer_controller_has_put_it_in(space: Space, tmp_path: Path) -> None:
    path = f"/pods/{pod_name(OWNER, 't-1')}"

    def moves(provider: KubernetesProvider, lane: str, *, epoch: int) -> None:
        assert provider.capabilities.targets is not None
        provider.capabilities.targets.note_targets(
            owner=OWNER, fleet=FLEET, wanted={LANE: 0, lane: 1}, moved={"r1": lane}, epoch=epoch
        )

    def lane_of() -> str:
        return str(space.pod("t-1").metadata.labels[LABEL])

    async def scenario() -> None:
        newer = await space.prepared()
        await create(newer, order("t-1", lane=LANE))
        async with behind_a_proxy(space, tmp_path) as (older, proxy):
            await create(older, order("t-1", lane=LANE))
            released = threading.Event()
            proxy.faults.append(Fault(method="PATCH", path=path, until=released))
            moves(older, "long", epoch=1)
            late = asyncio.ensure_future(older.list_nodes(owner=OWNER, fleet=FLEET))
            while not proxy.held:
                await SYSTEM_CLOCK.sleep(0.05)
            # It is frozen there, and another controller takes the fleet over.
            moves(newer, "batch", epoch=2)
            await keeps(newer, lambda: lane_of() == "batch", "the newer one's")
            released.set()
            await late
            assert [each[2] for each in proxy.answers if each[1].endswith(path) and each[0] == "PATCH"] == [409]
            assert lane_of() == "batch"
            # What it lists now is of now, and what it wants of then.
            await older.list_nodes(owner=OWNER, fleet=FLEET)
            assert lane_of() == "batch"

    asyncio.run(scenario())


def test_a_lane_that_is_scaled_down_or_ends_is_not_held_by_its_budget(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        for number in (1, 2, 3):
            await create(provider, order(f"t-{number}", replica_id=f"r{number}", lane=LANE, argv=LISTENS))
        wants(provider, 3)
        await keeps(provider, lambda: allowed(space) == 1, "one of the three may be evicted")
        wants(provider, 1)
        await provider.stop(pod_name(OWNER, "t-1"), grace_s=1)
        await keeps(provider, lambda: not is_there(space, "t-1") and floor(space) == 0, "it follows what is wanted")
        # A lane of one is not held for ever: nobody would order a substitute for who has no notice.
        await keeps(provider, lambda: not held(space, "t-2"), "one more may be evicted")
        wants(provider, 0)
        await provider.stop(pod_name(OWNER, "t-3"), grace_s=1)
        await keeps(provider, lambda: not has(space) and not is_there(space, "t-3"), "all has gone")

    asyncio.run(scenario())


def test_what_somebody_edits_or_deletes_is_set_back_and_who_it_was_is_logged(
    space: Space, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="fleetctl_kubernetes")
    core = space.cluster.core

    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("t-1", lane=LANE))
        wants(provider, 1)
        await keeps(provider, lambda: len(has(space)) == 2, "both are there")
        edit = {"spec": {"minAvailable": 7}}
        space.policy.patch_namespaced_pod_disruption_budget(NAME, space.name, edit, field_manager="somebody")
        core.delete_namespaced_service(NAME, space.name)

        await keeps(provider, lambda: len(has(space)) == 2 and floor(space) == 0, "both are as they were")

    asyncio.run(scenario())
    assert f"PodDisruptionBudget {NAME} was changed" in caplog.text
    assert '"somebody"' in caplog.text


def test_what_a_newer_controller_has_written_is_left_by_an_older_one_which_says_so(space: Space) -> None:
    async def scenario() -> None:
        older, newer = await space.prepared(), await space.prepared()
        await create(older, order("t-1", lane=LANE))
        wants(older, 3)
        await keeps(older, lambda: len(has(space)) == 2 and floor(space) == 2, "the older one's are there")
        await create(newer, order("t-2", replica_id="r2", lane=LANE))
        wants(newer, 3, epoch=2)
        await keeps(newer, lambda: epochs(space) == ["2", "2"], "a takeover changes each, though it wants the same")
        # It was frozen before it listed: what it lists is of now, and what it wants of then.
        wants(older, 7)
        await listed(older, owner=OWNER, fleet=FLEET)
        wants(older, 0)
        await older.stop(pod_name(OWNER, "t-1"), grace_s=1)
        await older.stop(pod_name(OWNER, "t-2"), grace_s=1)
        await keeps(older, lambda: not space.cluster.names(space.name), "no pod is left")
        listing = await older.list_nodes(owner=OWNER, fleet=FLEET)
        assert (floor(space), epochs(space)) == (2, ["2", "2"])
        assert "a controller of epoch 2 has written it, and this one's is 1" in " ".join(listing.warnings)
        wants(newer, 0, epoch=2)
        await keeps(newer, lambda: not has(space), "its own go by the newer one")

    asyncio.run(scenario())


def test_what_came_or_changed_after_the_listing_is_not_overwritten_and_looked_at_anew(
    space: Space, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="fleetctl_kubernetes")
    path = f"/poddisruptionbudgets/{NAME}"

    async def scenario() -> None:
        newer = await space.prepared()
        async with behind_a_proxy(space, tmp_path) as (older, proxy):
            await create(newer, order("t-1", lane=LANE))
            await create(older, order("t-2", replica_id="r2", lane=LANE))
            for wanted in (2, 3):  # a budget that is made, and one that is changed
                released = threading.Event()
                proxy.faults.append(Fault(method="PATCH", path=path, until=released))
                wants(older, wanted)
                late = asyncio.ensure_future(older.list_nodes(owner=OWNER, fleet=FLEET))
                while not proxy.held:
                    await SYSTEM_CLOCK.sleep(0.05)
                proxy.held.clear()
                wants(newer, wanted + 5)
                await newer.list_nodes(owner=OWNER, fleet=FLEET)
                assert floor(space) == wanted + 4
                released.set()
                await late
                assert [each[2] for each in proxy.answers if each[1].endswith(path)][-1] == 409
                assert floor(space) == wanted + 4
                # Nobody has edited it, and the next listing is of now.
                await older.list_nodes(owner=OWNER, fleet=FLEET)
                assert floor(space) == wanted - 1

    asyncio.run(scenario())
    assert caplog.text == ""


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

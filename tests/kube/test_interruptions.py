"""Drills on a real API server: a replica's own pods are marked and taken at the deadline, and nothing else is touched."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl import codec
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ProviderError, UnavailableError
from fleetctl.model.catalogue import Market
from fleetctl.model.node import Node, NodeState, NoticeKind
from fleetctl.testing.orders import create, listed
from fleetctl_kubernetes.orders import InterruptionMark
from fleetctl_kubernetes.settings import INTERRUPTION, ORDER, pod_name
from tests.kube.cluster import GPU
from tests.kube.test_provider import FLEET, ON_DEMAND, OWNER, SPOT, STUBBORN, Space, described, order

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from fleetctl_kubernetes.provider import KubernetesProvider
    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture
def space(cluster: TestCluster, request: pytest.FixtureRequest) -> Iterator[Space]:
    name = cluster.namespace(f"i{abs(hash(request.node.nodeid)) % 10**8}")
    yield Space(cluster, name)
    cluster.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
    cluster.core.delete_namespace(name)


async def running(provider: KubernetesProvider, token: str, **changes: Any) -> Node:
    spot = {"offering": SPOT, "market": Market.SPOT, "argv": STUBBORN}
    await create(provider, order(token, **{**spot, **changes}))
    return await described(provider, token, lambda node: node.state is NodeState.RUNNING, "it runs")


async def interrupt(provider: KubernetesProvider, node_id: str, notice_s: float) -> None:
    assert provider.capabilities.interruptions is not None
    await provider.capabilities.interruptions.interrupt(node_id, notice_s=notice_s)


def deadline_of(space: Space) -> str:
    mark = (space.pod("t-1").metadata.annotations or {}).get(INTERRUPTION)
    return str(json.loads(mark)["deadline"]) if mark else ""


async def node_in(provider: KubernetesProvider) -> Node:
    (found,) = await listed(provider, owner=OWNER, fleet=FLEET)
    return found


@asynccontextmanager
async def controller_of(space: Space) -> AsyncIterator[KubernetesProvider]:
    """Return the provider of a controller that was started again: it has made no pod, and watches them."""
    provider = space.provider()
    assert provider.capabilities.events is not None
    first = asyncio.ensure_future(anext(aiter(provider.capabilities.events.watch(owner=OWNER, fleet=FLEET))))
    await first
    yield provider


def node_face(cluster: TestCluster, name: str) -> dict[str, Any]:
    """Return what is said of a machine, its conditions' heartbeats aside."""
    machine = cluster.core.read_node(name)
    return {
        "labels": machine.metadata.labels, "annotations": machine.metadata.annotations,
        "taints": machine.spec.taints, "unschedulable": machine.spec.unschedulable,
        "conditions": [(each.type, each.status, each.reason) for each in machine.status.conditions],
    }  # fmt: skip


def test_a_controller_started_after_the_notice_takes_the_pod_at_its_deadline_and_nobody_before(space: Space) -> None:
    core = space.cluster.core
    theirs = {
        "metadata": {"name": "theirs", "labels": {"app": "theirs"}},
        "spec": {
            "nodeName": "spot-1",
            "containers": [{"name": "a", "image": "tests/a:1", "command": ["sleep", "600"]}],
        },
    }

    async def scenario() -> None:
        first = await space.prepared()
        node = await running(first, "t-1")
        assert node.machine_id == "spot-1"
        neighbour, machine = core.create_namespaced_pod(space.name, theirs), node_face(space.cluster, "spot-1")
        await interrupt(space.provider(), node.id, 4.0)  # as a command does, in a process of its own
        noticed = await node_in(first)
        assert noticed.notice is not None
        assert (noticed.notice.kind, noticed.notice.takes_node, noticed.notice.taken_by) == (
            NoticeKind.INTERRUPTION, True, "",
        )  # fmt: skip
        assert noticed.state is NodeState.RUNNING
        assert noticed.notice.deadline is not None
        while SYSTEM_CLOCK.now() <= noticed.notice.deadline:
            await SYSTEM_CLOCK.sleep(0.2)
        # The first controller is no more; who only looks takes nothing, however often.
        onlooker = space.provider()
        for _ in range(3):
            assert (await node_in(onlooker)).state is NodeState.RUNNING
        async with controller_of(space) as second:
            gone = await described(second, "t-1", lambda each: each.state is NodeState.GONE, "it is taken")
            assert gone.exit_reason == "interrupted"
            assert space.cluster.names(space.name) == ["theirs"]
            # What a controller asks for once more changes nothing.
            await second.stop(node.id, grace_s=5)
            assert (await node_in(second)).exit_reason == "interrupted"
        there = core.read_namespaced_pod("theirs", space.name)
        assert (there.metadata.uid, there.metadata.deletion_timestamp, there.metadata.annotations) == (
            neighbour.metadata.uid, None, None,
        )  # fmt: skip
        assert node_face(space.cluster, "spot-1") == machine

    asyncio.run(scenario())


def test_of_two_drills_at_once_the_earlier_counts_and_labels_set_back_leave_its_mark(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        node = await running(provider, "t-1")
        began = SYSTEM_CLOCK.now()
        await asyncio.gather(*(interrupt(space.provider(), node.id, notice_s) for notice_s in (600.0, 300.0, 900.0)))
        marked = deadline_of(space)
        assert SYSTEM_CLOCK.now() < began + timedelta(seconds=300)
        await interrupt(provider, node.id, 700.0)
        assert deadline_of(space) == marked
        noticed = await node_in(provider)
        assert noticed.notice is not None
        assert noticed.notice.deadline is not None
        assert 250.0 < (noticed.notice.deadline - began).total_seconds() < 400.0
        space.cluster.core.patch_namespaced_pod(
            node.id, space.name, {"metadata": {"labels": {"fleetctl.dev/lane": "x"}}}
        )
        space.annotate("t-1", **{ORDER: "nothing"})
        await listed(provider, owner=OWNER, fleet=FLEET)
        assert space.pod("t-1").metadata.annotations[ORDER] != "nothing", "it is set back"
        assert deadline_of(space) == marked

    asyncio.run(scenario())


def test_a_pod_that_is_ending_with_a_longer_grace_is_taken_at_the_deadline(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        node = await running(provider, "t-1")
        space.cluster.core.delete_namespaced_pod(node.id, space.name, grace_period_seconds=600)
        await interrupt(provider, node.id, 1.0)
        gone = await described(provider, "t-1", lambda each: each.state is NodeState.GONE, "it is taken")
        assert gone.exit_reason == "interrupted"

    asyncio.run(scenario())


def test_what_is_on_no_node_has_ended_is_a_strangers_or_on_demand_is_not_interrupted(space: Space) -> None:
    core = space.cluster.core
    stranger = {
        "metadata": {"name": "theirs"},
        "spec": {"containers": [{"name": "a", "image": "tests/a:1", "command": ["sleep", "600"]}]},
    }

    async def scenario() -> None:
        provider = await space.prepared()
        waiting = await create(provider, order("t-1", offering=f"1x{GPU}/nowhere/spot", market=Market.SPOT))
        with pytest.raises(UnavailableError, match="is on no node yet"):
            await interrupt(provider, waiting.id, 0.0)
        ended = order("t-2", offering=SPOT, market=Market.SPOT, argv=("true",), replica_id="r2")
        await create(provider, ended)
        await described(provider, "t-2", lambda node: node.state is NodeState.GONE, "it has ended")
        bought = await running(provider, "t-3", replica_id="r3", offering=ON_DEMAND, market=Market.ON_DEMAND)
        core.create_namespaced_pod(space.name, stranger)
        for name in (pod_name(OWNER, "t-2"), bought.id, "theirs", "nobody"):
            with pytest.raises(ProviderError, match=r"no living node|only spot"):
                await interrupt(provider, name, 0.0)
        assert not [
            each.metadata.name
            for each in core.list_namespaced_pod(space.name).items
            if INTERRUPTION in (each.metadata.annotations or {})
        ]

    asyncio.run(scenario())


def test_a_mark_that_is_not_of_this_pod_or_not_ours_to_read_takes_nothing(space: Space) -> None:
    def mark(uid: str) -> str:
        return codec.encode(InterruptionMark(deadline=SYSTEM_CLOCK.now(), uid=uid)).decode()

    async def scenario() -> None:
        provider = await space.prepared()
        await running(provider, "t-1")
        await running(provider, "t-2", replica_id="r2", offering=ON_DEMAND, market=Market.ON_DEMAND)
        space.annotate("t-2", **{INTERRUPTION: mark(space.pod("t-2").metadata.uid)})
        for text in (mark("another"), "now", "{}"):
            space.annotate("t-1", **{INTERRUPTION: text})
            nodes = await listed(provider, owner=OWNER, fleet=FLEET)
            assert [(node.state, node.notice) for node in nodes] == [(NodeState.RUNNING, None)] * 2
        assert [space.pod(token).metadata.deletion_timestamp for token in ("t-1", "t-2")] == [None, None]

    asyncio.run(scenario())

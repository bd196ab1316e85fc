"""Replicas over several nodes, by the real LeaderWorkerSet controller: the contract's lines for groups, and vLLM's commands."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.engine_kit.containers import container_launch
from fleetctl.errors import ProviderError
from fleetctl.model.catalogue import Market
from fleetctl.model.node import NodeState, NoticeKind
from fleetctl.model.preflight import PlannedNodes, Verdict
from fleetctl.plugins import load_engine
from fleetctl.testing.orders import create, listed
from fleetctl_kubernetes.group_members import NAME as GROUP_NAME
from fleetctl_kubernetes.manifest import OWN_ADDRESS
from fleetctl_kubernetes.provider import KubernetesProvider
from fleetctl_kubernetes.settings import pod_name
from tests.kube.lws import running_lws
from tests.kube.test_lane_objects import addresses, keeps
from tests.kube.test_provider import FLEET, OWNER, SPOT, STUBBORN, Space, described, order
from tests.providers.contract import test_machines
from tests.providers.contract.cases import Case
from tests.render import fleets
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

KIND = ("leaderworkerset.x-k8s.io", "v1")
GROUP: dict[str, Any] = {"node_count": 3, "gpu_count": 1, "member_argv": ("sleep", "600"), "offering": SPOT}
ENDS = "test_a_group_ends_with_the_first_of_its_machines_and_leaves_none_behind"
OF_CONTRACT = [each for each in vars(test_machines) if each.startswith(("test_a_group_", "test_stopping_a_group"))]
LINES = [
    (name, index) for name in OF_CONTRACT if "refused" not in name for index in (range(3) if name == ENDS else (0,))
]


@pytest.fixture(scope="module")
def with_lws(cluster: TestCluster) -> Iterator[TestCluster]:
    with running_lws(cluster):
        yield cluster


@pytest.fixture
def space(with_lws: TestCluster, request: pytest.FixtureRequest) -> Iterator[Space]:
    name = with_lws.namespace(f"g{abs(hash(request.node.nodeid)) % 10**8}")
    yield Space(with_lws, name)
    sets = client.CustomObjectsApi(with_lws.api)
    sets.delete_collection_namespaced_custom_object(*KIND, name, "leaderworkersets")
    until(lambda: sets_of(Space(with_lws, name)) == [], "no group is left")
    with_lws.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
    with_lws.core.delete_namespace(name)


def sets_of(space: Space) -> list[Any]:
    found = client.CustomObjectsApi(space.cluster.api).list_namespaced_custom_object(
        *KIND, space.name, "leaderworkersets"
    )
    return list(found["items"])


class GroupPods:
    """The machines of groups, which are pods: all that are there once their controller has made them."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def machines(self) -> set[str]:
        until(
            lambda: len(self._pods()) == self._wanted(),
            "every group has all its pods, and none is left of others",
            within_s=150,
        )
        return self._pods()

    def end_machine(self, machine_id: str) -> None:
        core = self._space.cluster.core
        core.delete_namespaced_pod(machine_id, self._space.name, grace_period_seconds=0)

    def _pods(self) -> set[str]:
        found = self._space.cluster.core.list_namespaced_pod(self._space.name, label_selector=GROUP_NAME)
        return {each.metadata.name for each in found.items}

    def _wanted(self) -> int:
        return sum(each["spec"]["leaderWorkerTemplate"]["size"] for each in sets_of(self._space))


def test_where_the_kind_is_not_installed_groups_are_refused_plainly(cluster: TestCluster) -> None:
    name = cluster.namespace("no-groups")
    space = Space(cluster, name)

    async def scenario() -> None:
        provider = await space.prepared()
        with pytest.raises(ProviderError, match="no LeaderWorkerSet") as refused:
            await create(provider, order("t-1", **GROUP))
        assert "lws.sigs.k8s.io" in refused.value.hint
        assert provider.capabilities.preflight is not None
        sold = next(each for each in await provider.offerings() if each.key == SPOT)
        planned = PlannedNodes(offering=sold, count=1, to_create=1, gpu_count=1, node_count=3)
        found = {each.name: each for each in await provider.capabilities.preflight.findings((planned,))}
        assert found["groups"].verdict is Verdict.FAIL
        assert found["GPUs"].detail.startswith("the plan takes 3 of")
        assert await listed(provider, owner=OWNER, fleet=FLEET) == ()

    try:
        asyncio.run(scenario())
    finally:
        cluster.core.delete_namespace(name)


@pytest.mark.parametrize(("name", "index"), LINES)
def test_the_contracts_lines_for_groups_are_kept(name: str, index: int, space: Space) -> None:
    scenario = vars(test_machines)[name]
    case = Case(
        lambda clock: KubernetesProvider(clock, settings=space.settings),
        machines=lambda _: GroupPods(space),
        order={"offering": SPOT},
    )
    held = partial(case.run, owner=OWNER)
    scenario(held, index) if name == ENDS else scenario(held)


def vllm_over_two_nodes() -> dict[str, Any]:
    """Return what an order of a lane on vLLM says that spans two nodes."""
    profile, plan = fleets.fleet((fleets.lane("short", "vllm"), fleets.lane_plan("short", "vllm")))
    lane, planned = profile.lane("short"), plan.lane("short")
    planned = replace(planned, launch=replace(planned.launch, pipeline_parallel=2))
    engine = load_engine("vllm")
    command = engine.launch(plan=plan, lane=lane, lane_plan=planned, host=OWN_ADDRESS, port=8000)
    container = container_launch(engine, command, lane, planned.launch)
    return {
        "argv": command.argv, "member_argv": command.member_argv, "container": container, "node_count": 2,
        "gpu_count": 1, "offering": SPOT, "health_path": engine.health_path, "start_timeout_s": 600.0,
    }  # fmt: skip


def test_vllm_is_started_on_every_node_with_its_rank_and_its_leaders_address(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        node = await create(provider, order("t-1", **vllm_over_two_nodes()))
        name = pod_name(OWNER, "t-1")
        assert (node.id, node.machine_id, node.members) == (name, f"{name}-0", (f"{name}-0-1",))

    asyncio.run(scenario())
    name = pod_name(OWNER, "t-1")
    listed_pods = space.cluster.core.list_namespaced_pod

    # One listing of both: vLLM ends at once where there are no GPUs, and then the whole group is made anew.
    def both() -> list[Any]:
        pods = {pod.metadata.name: pod for pod in listed_pods(space.name).items}
        return (
            [pods[each] for each in (f"{name}-0", f"{name}-0-1")] if set(pods) == {f"{name}-0", f"{name}-0-1"} else []
        )

    found: list[list[Any]] = []

    def look() -> list[Any]:
        found.append(both())
        return found[-1]

    until(look, "both pods are there", within_s=150)
    for rank, pod in enumerate(found[-1]):
        (container,) = pod.spec.containers
        env = {each.name: each.value for each in container.env}
        assert env["LWS_LEADER_ADDRESS"] == f"{name}-0.{name}.{space.name}"
        assert (env["LWS_WORKER_INDEX"], env["LWS_GROUP_SIZE"]) == (str(rank), "2")
        given = dict(zip(container.args, container.args[1:], strict=False))
        assert given["--master-addr"] == "$(LWS_LEADER_ADDRESS)"
        assert given["--node-rank"] == ("$(LWS_WORKER_INDEX)" if rank else "0")
        assert given["--nnodes"] == "2"
        assert ("--headless" in container.args) == bool(rank)
        assert container.resources.limits == {"nvidia.com/gpu": "1"}
        assert bool(container.startup_probe) == (rank == 0)


def test_a_group_is_behind_its_service_by_its_leader_and_drains_when_one_of_its_pods_is_evicted(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        listens = ("python3", "-m", "http.server", "8000", "--bind", OWN_ADDRESS)
        group = order("t-1", lane="short", argv=listens, **GROUP)
        await create(provider, replace(group, engine_drain_s=20.0))
        node = await described(provider, "t-1", lambda node: node.state is NodeState.RUNNING, "it runs")
        await keeps(provider, lambda: addresses(space) == {node.host}, "its leader alone is behind the Service")
        space.cluster.core.create_namespaced_pod_eviction(
            node.members[1], space.name, {"metadata": {"name": node.members[1]}}
        )
        noticed = await described(provider, "t-1", lambda node: node.notice is not None, "it is to leave")
        assert noticed.state is NodeState.STOPPING
        assert noticed.notice is not None
        assert (noticed.notice.kind, noticed.notice.takes_node) == (NoticeKind.INTERRUPTION, True)
        gone = await described(provider, "t-1", lambda node: node.state is NodeState.GONE, "it has gone")
        assert gone.exit_reason == f"{node.members[1]}: EvictionByEvictionAPI"
        assert gone.taken_by.startswith("the eviction API")
        assert [each.state for each in await listed(provider, owner=OWNER, fleet=FLEET)] == [NodeState.GONE]
        until(lambda: space.cluster.names(space.name) == [], "none is made anew")

    asyncio.run(scenario())


def test_a_group_whose_engine_ends_is_lost_with_how_it_ended(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("t-1", **{**GROUP, "member_argv": ("python3", "-c", "raise SystemExit(3)")}))
        gone = await described(provider, "t-1", lambda node: node.state is NodeState.GONE, "it has ended")
        assert gone.exit_reason.endswith(": exit 3")
        until(lambda: space.cluster.names(space.name) == [], "no pod is left")

    asyncio.run(scenario())


def test_a_group_is_stopped_within_its_grace_and_nothing_of_it_is_left(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("t-1", argv=STUBBORN, **{**GROUP, "member_argv": STUBBORN}))
        await described(provider, "t-1", lambda node: node.state is NodeState.RUNNING, "it runs")
        began_s = SYSTEM_CLOCK.monotonic_s()
        await provider.stop(pod_name(OWNER, "t-1"), grace_s=3)
        gone = await described(provider, "t-1", lambda node: node.state is NodeState.GONE, "it was stopped")
        assert gone.exit_reason == "stopped"
        assert SYSTEM_CLOCK.monotonic_s() - began_s < 70  # its pods' own grace is 75 s
        for resource in reversed(provider.needed(owner=OWNER, fleet=FLEET)):
            await provider.teardown(resource)
        kept = space.cluster.core.list_namespaced_config_map(space.name).items
        assert {each.metadata.name for each in kept} <= {"kube-root-ca.crt"}

    asyncio.run(scenario())


def test_a_drill_takes_every_pod_of_a_group_at_its_deadline_and_none_is_made_anew(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        spot = {**GROUP, "member_argv": STUBBORN, "market": Market.SPOT}
        await create(provider, order("t-1", argv=STUBBORN, **spot))
        node = await described(provider, "t-1", lambda node: node.state is NodeState.RUNNING, "it runs")
        interruptions = space.provider().capabilities.interruptions
        assert interruptions is not None
        began_s = SYSTEM_CLOCK.monotonic_s()
        await interruptions.interrupt(node.id, notice_s=3.0)
        (noticed,) = await listed(provider, owner=OWNER, fleet=FLEET)
        assert noticed.notice is not None
        assert noticed.notice.takes_node
        assert noticed.state is NodeState.RUNNING
        assert len(sets_of(space)) == 1
        gone = await described(provider, "t-1", lambda node: node.state is NodeState.GONE, "it is taken")
        assert gone.exit_reason == "interrupted"
        assert SYSTEM_CLOCK.monotonic_s() - began_s < 70  # its pods' own grace is 75 s
        until(lambda: space.cluster.names(space.name) == [], "none is made anew")
        assert sets_of(space) == []

    asyncio.run(scenario())

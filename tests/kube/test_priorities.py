"""PriorityClasses of lanes: shared by fleets, gone with the last of them, and what the scheduler does by them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from fleetctl.model.node import NodeState, NoticeKind
from fleetctl.model.preflight import Verdict
from fleetctl.testing.orders import create, listed
from fleetctl_kubernetes.provider import KubernetesProvider
from tests.kube.cluster import GPU
from tests.kube.test_provider import FLEET, OWNER, Space, described, order

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

FIRST, LAST = "fleetctl-lane-1", "fleetctl-interruptible"


@pytest.fixture
def space(cluster: TestCluster, request: pytest.FixtureRequest) -> Iterator[Space]:
    without_classes(cluster)  # those of orders of other files, whose fleets were not taken down
    name = cluster.namespace(f"q{abs(hash(request.node.nodeid)) % 10**8}")
    yield Space(cluster, name)
    cluster.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
    cluster.core.delete_namespace(name)
    without_classes(cluster)


def without_classes(cluster: TestCluster) -> None:
    """Delete fleetctl's own classes."""
    for each in classes(cluster):
        client.SchedulingV1Api(cluster.api).delete_priority_class(each)


def classes(cluster: TestCluster) -> dict[str, Any]:
    """Return the values of fleetctl's own classes."""
    found = client.SchedulingV1Api(cluster.api).list_priority_class().items
    return {each.metadata.name: each.value for each in found if each.metadata.name.startswith("fleetctl-")}


async def torn_down(provider: KubernetesProvider, fleet: str) -> None:
    for resource in reversed(provider.needed(owner=OWNER, fleet=fleet)):
        await provider.teardown(resource)


def test_fleets_share_the_classes_and_the_last_takes_them_away(space: Space) -> None:
    theirs = {"metadata": {"name": "fleetctl-like"}, "value": 7}
    client.SchedulingV1Api(space.cluster.api).create_priority_class(theirs)

    async def scenario() -> None:
        providers = {fleet: space.provider() for fleet in (FLEET, "other")}
        for fleet, provider in providers.items():
            for resource in provider.needed(owner=OWNER, fleet=fleet):
                await provider.prepare(resource)
        orders = [order("t-1"), order("t-2", replica_id="r2", lane="long", lane_rank=1)]
        orders.append(order("t-3", replica_id="r3", lane="batch", lane_rank=2, is_interruptible=True))
        await asyncio.gather(*(create(providers[FLEET], each) for each in orders))
        await create(providers["other"], order("t-4", fleet="other"))
        assert classes(space.cluster) == {FIRST: 0, "fleetctl-lane-2": -1, LAST: -10, "fleetctl-like": 7}
        assert space.pod("t-3").spec.preemption_policy == "Never"
        assert (space.pod("t-1").spec.priority, space.pod("t-2").spec.priority) == (0, -1)
        await torn_down(providers[FLEET], FLEET)
        assert classes(space.cluster) == {FIRST: 0, "fleetctl-like": 7}
        await torn_down(space.provider(), "other")  # by a process that made none of them
        assert classes(space.cluster) == {"fleetctl-like": 7}

    asyncio.run(scenario())


def test_a_class_that_somebody_takes_away_is_made_again(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("t-1"))
        client.SchedulingV1Api(space.cluster.api).delete_priority_class(FIRST)
        await create(provider, order("t-2", replica_id="r2"))
        assert space.pod("t-2").spec.priority_class_name == FIRST

    asyncio.run(scenario())


def test_classes_follow_the_clusters_default_so_that_ours_are_never_above_others(space: Space) -> None:
    scheduling = client.SchedulingV1Api(space.cluster.api)
    default = {"metadata": {"name": "usual"}, "value": 1000, "globalDefault": True}

    def marks() -> int:
        return len(scheduling.read_priority_class(FIRST).metadata.annotations)

    async def scenario() -> None:
        providers = {fleet: space.provider() for fleet in (FLEET, "other")}
        for fleet, provider in providers.items():
            for resource in provider.needed(owner=OWNER, fleet=fleet):
                await provider.prepare(resource)
        await create(providers[FLEET], order("t-1"))
        assert (classes(space.cluster), marks()) == ({FIRST: 1000}, 1)
        scheduling.delete_priority_class("usual")
        await create(providers["other"], order("t-2", fleet="other"))
        assert (classes(space.cluster), marks()) == ({FIRST: 0}, 2)
        await torn_down(providers[FLEET], FLEET)
        assert (classes(space.cluster), marks()) == ({FIRST: 0}, 1)

    scheduling.create_priority_class(default)
    try:
        asyncio.run(scenario())
    finally:
        if "usual" in [each.metadata.name for each in scheduling.list_priority_class().items]:
            scheduling.delete_priority_class("usual")


def test_the_profiles_own_classes_are_taken_and_none_made(space: Space) -> None:
    async def finding(provider: KubernetesProvider) -> Verdict:
        assert provider.capabilities.preflight is not None
        found = await provider.capabilities.preflight.findings(())
        return next(each.verdict for each in found if each.name == "priorities")

    async def scenario() -> None:
        await space.prepared()
        named = replace(space.settings, priority_classes=("short=system-cluster-critical",))
        provider = KubernetesProvider(settings=named)
        await create(provider, order("t-1", lane="short"))
        await create(provider, order("t-2", replica_id="r2", lane="long"))
        assert space.pod("t-1").spec.priority_class_name == "system-cluster-critical"
        assert not space.pod("t-2").spec.priority_class_name
        assert classes(space.cluster) == {}
        assert await finding(provider) is Verdict.OK
        absent = replace(space.settings, priority_classes=("short=absent",))
        assert await finding(KubernetesProvider(settings=absent)) is Verdict.FAIL
        assert await finding(space.provider()) is Verdict.OK

    asyncio.run(scenario())


def test_who_may_make_no_classes_plans_with_nobody_preempted(space: Space, tmp_path: Path) -> None:
    core, roles, name = space.cluster.core, client.RbacAuthorizationV1Api(space.cluster.api), f"reader-{space.name}"
    core.create_namespaced_service_account(space.name, {"metadata": {"name": name}})
    rules = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"]}]
    roles.create_cluster_role({"metadata": {"name": name}, "rules": rules})
    roles.create_cluster_role_binding(
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": space.name}],
        }
    )
    written = json.loads(space.cluster.kubeconfig.read_text())
    token = core.create_namespaced_service_account_token(name, space.name, {"spec": {}}).status.token
    written["users"][0]["user"] = {"token": token}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(written))
    space.cluster.node("one-gpu", gpus=1, zone="zone-r")
    try:
        for settings, expected in (
            (space.settings, True),
            (replace(space.settings, kubeconfig=str(kubeconfig)), False),
        ):
            sold = asyncio.run(KubernetesProvider(settings=settings).offerings())
            assert {each.is_preemptive for each in sold} == {expected}
    finally:
        core.delete_node("one-gpu")
        roles.delete_cluster_role_binding(name)
        roles.delete_cluster_role(name)


def test_where_gpus_are_out_a_lane_that_may_be_interrupted_makes_room(space: Space) -> None:
    """By the real scheduler: it deletes the pod, with its grace, and the controller is told for whom."""
    space.cluster.node("two-gpus", gpus=2, zone="zone-p")
    offering = f"2x{GPU}/zone-p/on-demand"

    async def scenario() -> None:
        provider = await space.prepared()
        batch = order("t-1", lane="batch", lane_rank=2, is_interruptible=True, gpu_count=2, offering=offering)
        await create(provider, batch)
        await described(provider, "t-1", lambda node: node.state is NodeState.RUNNING, "it runs")
        await create(provider, order("t-2", replica_id="r2", lane="short", gpu_count=2, offering=offering))
        node = await described(provider, "t-1", lambda node: node.notice is not None, "it makes room")
        assert node.notice is not None
        assert node.notice.kind is NoticeKind.PREEMPTION
        assert node.notice.taker
        assert node.notice.takes_node
        waiting = {each.replica_id: each for each in await listed(provider, owner=OWNER, fleet=FLEET)}["r2"]
        assert not waiting.is_out_of_stock
        await described(provider, "t-2", lambda node: node.state is NodeState.RUNNING, "the other runs")

    try:
        asyncio.run(scenario())
    finally:
        space.cluster.core.delete_node("two-gpus")

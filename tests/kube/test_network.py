"""Who reaches the engines: a NetworkPolicy for each lane, where the profile says where the gateway is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from fleetctl.model.preflight import Verdict
from fleetctl.testing.orders import create, listed
from fleetctl_kubernetes.provider import KubernetesProvider
from tests.kube.test_lane_objects import LANE, NAME, keeps
from tests.kube.test_provider import FLEET, OWNER, Space, order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture
def space(cluster: TestCluster, request: pytest.FixtureRequest) -> Iterator[Space]:
    name = cluster.namespace(f"n{abs(hash(request.node.nodeid)) % 10**8}")
    yield Space(cluster, name)
    cluster.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
    cluster.core.delete_namespace(name)


def at(space: Space, **changes: Any) -> KubernetesProvider:
    return KubernetesProvider(settings=replace(space.settings, **changes))


def policies(space: Space) -> list[Any]:
    return list(client.NetworkingV1Api(space.cluster.api).list_namespaced_network_policy(space.name).items)


def test_a_lanes_engines_are_reached_from_where_its_gateway_is_and_by_prometheus(space: Space) -> None:
    async def scenario() -> None:
        await space.prepared()
        provider = at(space, gateway_source=("10.1.2.3/8", "pods"), prometheus=True)
        await create(provider, order("t-1", lane=LANE))
        await keeps(provider, lambda: policies(space), "it is there")
        (policy,) = policies(space)
        assert policy.metadata.name == NAME
        pod = space.pod("t-1").metadata.labels
        assert policy.spec.pod_selector.match_labels.items() <= pod.items()
        (rule,) = policy.spec.ingress
        assert [(each.port, each.protocol) for each in rule.ports] == [("http", "TCP")]
        block, own, prometheus = rule._from
        assert block.ip_block.cidr == "10.0.0.0/8"
        assert own.pod_selector.match_labels == {"fleetctl.dev/fleet": FLEET}
        assert own.namespace_selector is None
        assert prometheus.pod_selector.match_labels == {"app.kubernetes.io/name": "prometheus"}
        assert prometheus.namespace_selector is not None
        # One that is no longer wanted goes, and so does not keep a gateway out that has moved.
        again = at(space)
        await create(again, order("t-2", replica_id="r2", lane=LANE))
        await keeps(again, lambda: not policies(space), "it has gone")

    asyncio.run(scenario())


def test_where_nothing_is_said_of_the_gateway_none_is_made_and_the_preflight_says_so(space: Space) -> None:
    async def finding(provider: KubernetesProvider) -> tuple[Verdict, str, str]:
        assert provider.capabilities.preflight is not None
        found = {each.name: each for each in await provider.capabilities.preflight.findings(())}["network policy"]
        return found.verdict, found.detail, found.hint

    verdict, detail, hint = asyncio.run(finding(at(space)))
    assert verdict is Verdict.WARN
    assert detail.startswith("none is made")
    assert "provider.gateway_source" in hint
    assert asyncio.run(finding(at(space, gateway_source=("pods",))))[0] is Verdict.OK
    verdict, detail, _ = asyncio.run(finding(at(space, gateway_source=("10.0.0.300/8",))))
    assert (verdict, "'10.0.0.300/8' is no network" in detail) == (Verdict.FAIL, True)

    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("t-1", lane=LANE))
        await listed(provider, owner=OWNER, fleet=FLEET)
        assert policies(space) == []

    asyncio.run(scenario())

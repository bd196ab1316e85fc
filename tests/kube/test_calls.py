"""How often the API server is asked: no oftener for many pods than for one, where one answer says it all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.node import NodeState
from fleetctl.testing.orders import create, listed
from fleetctl_kubernetes.settings import fleet_name, pod_name
from tests.kube.test_faults import behind_a_proxy
from tests.kube.test_provider import FLEET, OWNER, Space, described, order

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fleetctl_kubernetes.provider import KubernetesProvider
    from tests.kube.cluster import TestCluster
    from tests.kube.fault_proxy import FaultProxy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

TOKENS = tuple(f"t-{number}" for number in range(12))


@pytest.fixture
def space(cluster: TestCluster, request: pytest.FixtureRequest) -> Iterator[Space]:
    name = cluster.namespace(f"c{abs(hash(request.node.nodeid)) % 10**8}")
    yield Space(cluster, name)
    cluster.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
    cluster.core.delete_namespace(name)


async def running(provider: KubernetesProvider, tokens: tuple[str, ...]) -> None:
    argv = ("sh", "-c", "echo up; exec sleep 600")
    await asyncio.gather(*(create(provider, order(token, replica_id=f"r-{token}", argv=argv)) for token in tokens))
    for token in tokens:
        await described(provider, token, lambda node: node.state is NodeState.RUNNING, f"{token} runs")


async def ends_of(provider: KubernetesProvider, names: set[str]) -> dict[str, str]:
    """Return how pods ended, by name, as the watch says of each."""
    found: dict[str, str] = {}
    assert provider.capabilities.events is not None
    async with asyncio.timeout(60.0):
        async for node in provider.capabilities.events.watch(owner=OWNER, fleet=FLEET):
            if node.state is NodeState.GONE and node.id in names:
                found[node.id] = node.exit_reason
            if found.keys() == names:
                return found
    raise AssertionError(names - found.keys())


def readings(proxy: FaultProxy, kind: str) -> int:
    return sum(count for (method, path), count in proxy.calls.items() if method == "GET" and path.endswith(kind))


def test_the_records_of_many_ends_are_not_read_once_for_each(space: Space, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with behind_a_proxy(space, tmp_path) as (provider, proxy):
            await running(provider, TOKENS)
            names = {pod_name(OWNER, token) for token in TOKENS}
            before = readings(proxy, f"/configmaps/{fleet_name(OWNER, FLEET)}")
            watched = asyncio.ensure_future(ends_of(provider, names))
            await SYSTEM_CLOCK.sleep(1.0)
            await asyncio.gather(*(provider.stop(name, grace_s=1) for name in names))
            assert await watched == dict.fromkeys(names, "stopped")
            # Each is told twice: as it is deleted, and as it has gone.
            assert readings(proxy, f"/configmaps/{fleet_name(OWNER, FLEET)}") - before < len(names)

    asyncio.run(scenario())


def test_pieces_of_a_log_are_read_without_listing_the_pods(space: Space, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with behind_a_proxy(space, tmp_path) as (provider, proxy):
            logs = provider.capabilities.logs
            assert logs is not None
            await running(provider, TOKENS[:1])
            assert len(await listed(provider, owner=OWNER, fleet=FLEET)) == 1
            before = readings(proxy, "/pods")

            async def text() -> str:
                found = await logs.read_log(
                    owner=OWNER, fleet=FLEET, replica_id=f"r-{TOKENS[0]}", after=None, bytes_max=100
                )
                return found.text

            assert [await text() for _ in range(3)] == ["up\n"] * 3
            assert readings(proxy, "/pods") == before
            await provider.stop(pod_name(OWNER, TOKENS[0]), grace_s=1)
            await described(provider, TOKENS[0], lambda node: node.state is NodeState.GONE, "it has gone")
            async with asyncio.timeout(30.0):
                while await text():
                    await SYSTEM_CLOCK.sleep(0.2)

    asyncio.run(scenario())

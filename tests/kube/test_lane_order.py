"""Orders of several lanes at once, of which a namespace's quota leaves room for a few."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.kube.test_provider import Space, order
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture
def space(cluster: TestCluster) -> Iterator[Space]:
    name = cluster.namespace("lane-order")
    yield Space(cluster, name)
    cluster.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
    cluster.core.delete_namespace(name)


def test_what_a_quota_leaves_goes_to_the_lanes_that_come_first(space: Space) -> None:
    core = space.cluster.core
    core.create_namespaced_resource_quota(space.name, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}})
    until(
        lambda: core.read_namespaced_resource_quota("few", space.name).status.used == {"pods": "0"}, "quota is counted"
    )
    lanes = (("batch", 0, True), ("long", 2, False), ("long", 2, False), ("short", 1, False), ("short", 1, False))
    orders = tuple(
        order(f"t-{number}", replica_id=f"r{number}", lane=lane, lane_rank=rank, is_interruptible=yields)
        for number, (lane, rank, yields) in enumerate(lanes)
    )

    async def scenario() -> list[str]:
        provider = await space.prepared()
        results = await provider.create(orders, resolve_secrets=dict)
        assert [each.token for each in results] == [each.token for each in orders]
        return [each.lane for each, result in zip(orders, results, strict=True) if result.error is None]

    assert asyncio.run(scenario()) == ["short", "short"]

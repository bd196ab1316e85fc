"""A provider's listings take longer than it says, or than they did, or are never whole: what is gone is seen all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.model.node import ProviderPace
from fleetctl.model.replica import ReplicaState
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.cloud_rig import Cloud
from tests.controller.rig import FLEET
from tests.controller.test_provider_faults import KIND, check_nothing_is_left

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.testing.fault_provider import CloudFaults

HONEST = ProviderPace(list_interval_s=5.0, list_latency_s=6.0, list_deadline_s=60.0)


def on_cloud(home: Path, faults: CloudFaults, declared: ProviderPace | None) -> Cloud:
    cloud = Cloud(home, 7, slots=4, faults=faults, declared=declared)
    cloud.up(spot=1)
    return cloud


async def kill_one(cloud: Cloud) -> str:
    """End a replica's node; return the replica's id once it is replaced, or after two minutes."""
    victim = cloud.provider.living()[0]
    cloud.provider.end(victim.token)
    await cloud.live(
        120,
        until=lambda: (
            victim.replica_id not in {r.id for r in cloud.replicas()} and len(cloud.replicas(ReplicaState.READY)) == 4
        ),
    )
    return victim.replica_id


SLOW = [
    pytest.param(6.0, ProviderPace(), id="6 s, and nothing said"),
    pytest.param(8.0, ProviderPace(list_latency_s=1.0), id="8 s, and 1 s said"),
    pytest.param(6.0, HONEST, id="6 s, and said"),
]


@pytest.mark.parametrize(("list_s", "declared"), SLOW)
def test_a_listing_within_its_deadline_is_believed(tmp_path: Path, list_s: float, declared: ProviderPace) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, replace(KIND, list_s=list_s), declared)
        await cloud.live(60)
        assert cloud.status is not None
        assert "does not answer" not in cloud.status.reason
        dead = await kill_one(cloud)
        assert dead not in {r.id for r in cloud.replicas()}
        assert len(cloud.replicas(ReplicaState.READY)) == 4
        cloud.down()
        assert await cloud.live(120), cloud.status
        assert cloud.store.tombstones() == ()
        await check_nothing_is_left(cloud)

    run_virtual(scenario())


def test_listings_that_become_slower_during_down_are_believed(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, replace(KIND, list_s=6.0), HONEST)
        await cloud.live(60)
        cloud.provider.faults = replace(KIND, list_s=40.0)
        cloud.down()
        assert await cloud.live(240), cloud.status
        assert cloud.store.tombstones() == ()
        await check_nothing_is_left(cloud)

    run_virtual(scenario())


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(replace(KIND, partial=1.0, strangers=700), id="partial"),
        pytest.param(replace(KIND, list_s=30.0), id="later than its deadline"),
    ],
)
def test_down_ends_without_a_whole_listing_and_says_what_it_could_not_verify(
    tmp_path: Path, faults: CloudFaults
) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, KIND, ProviderPace())
        await cloud.live(30)
        cloud.provider.faults = faults
        cloud.down()
        assert await cloud.live(180), cloud.status
        assert cloud.provider.living() == []
        stones = cloud.store.tombstones(FLEET)
        assert [stone.is_of_fleet for stone in stones] == [True]
        assert "no complete listing" in stones[0].reason
        await check_nothing_is_left(cloud)

    run_virtual(scenario())


def test_a_death_is_seen_by_its_token_while_listings_stay_partial(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, KIND, ProviderPace())
        await cloud.live(30)
        cloud.provider.faults = replace(KIND, partial=1.0, strangers=700)
        await cloud.live(30)
        dead = await kill_one(cloud)
        assert dead not in {r.id for r in cloud.replicas()}
        assert len(cloud.replicas(ReplicaState.READY)) == 4

    run_virtual(scenario())


def test_a_provider_that_is_slow_is_being_asked_and_one_that_is_late_does_not_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, replace(KIND, list_s=1e6), ProviderPace())
        await cloud.live(7)
        assert cloud.status is not None
        assert "the provider is being asked what there is (5s)" in cloud.status.reason
        assert "does not answer" not in cloud.status.reason
        await cloud.live(15)
        assert "the provider does not answer" in cloud.status.reason

    run_virtual(scenario())

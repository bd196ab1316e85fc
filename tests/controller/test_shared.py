"""What a fleet's nodes share, kept by the real controller on a bad cloud that kills it between any two steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.conditions import ConditionType, fleet_condition
from fleetctl.core.reconcile.limits import SHARED_GIVEN_UP_S
from fleetctl.errors import StateError
from fleetctl.model.replica import ReplicaState
from fleetctl.model.shared import SharedState
from fleetctl.testing.fault_provider import CloudFaults
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.cloud_rig import Cloud
from tests.controller.rig import FLEET

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("network", "queue", "role")
SETTLED_S = 200.0  # by then whatever was cut off has had its effect
KIND = CloudFaults(
    list_s=0.2, list_lag_s=0.0, create_s=1.0, boot_s=2.0, stop_s=1.0, throttled=0.0, cut=0.0, partial=0.0, strangers=0
)


def on_cloud(home: Path, faults: CloudFaults = KIND, seed: int = 7) -> Cloud:
    cloud = Cloud(home, seed, slots=4, faults=faults, shared=KINDS)
    cloud.up(spot=1)
    return cloud


async def check_nothing_is_left(cloud: Cloud) -> None:
    await cloud.clock.sleep(SETTLED_S)
    assert cloud.provider.shared.there() == []
    assert cloud.provider.living() == []
    assert cloud.store.shared_intents(FLEET) == ()
    assert cloud.store.tombstones() == ()
    cloud.store.remove_fleet(FLEET)


async def killed_now_and_then(cloud: Cloud, times: int) -> bool:
    """Live so many lives, each killed early; return whether one ended by itself."""
    for _ in range(times):
        if await cloud.live(cloud.dice.uniform(1, 60), steps=cloud.dice.randrange(1, 60)):
            return True
    return False


@pytest.mark.parametrize("seed", range(12))
def test_kills_between_prepare_create_down_and_teardown_leave_nothing(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        faults = replace(KIND, create_s=20.0, cut=0.3, throttled=0.2, list_lag_s=10.0)
        cloud = on_cloud(tmp_path, faults, seed)
        await killed_now_and_then(cloud, 8)
        if seed % 2:
            cloud.down()
            await killed_now_and_then(cloud, 3)
            cloud.up(spot=1)  # brought up again while it may be half torn down
            await killed_now_and_then(cloud, 3)
        assert not await cloud.live(600, until=lambda: len(cloud.replicas(ReplicaState.READY)) == 4)
        assert not await cloud.live(60)
        assert cloud.provider.shared.there() == list(KINDS)
        assert len(cloud.replicas(ReplicaState.READY)) == 4
        await cloud.clock.sleep(SETTLED_S)
        assert cloud.provider.shared.there() == list(KINDS)
        cloud.down()
        if not await killed_now_and_then(cloud, 8):
            assert await cloud.live(900), "it is not down"
        assert cloud.provider.shared.refusals == []
        await check_nothing_is_left(cloud)
        cloud.store.close()

    run_virtual(scenario())


def test_a_throttled_prepare_delays_the_creates_and_is_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, replace(KIND, throttled=1.0, retry_after_s=20.0))
        await cloud.live(60)
        assert "create" not in cloud.provider.calls
        assert cloud.provider.calls["prepare"] <= 4
        assert cloud.status is not None
        assert "throttles prepare" in cloud.status.reason
        assert "no node is ordered until network is prepared" in cloud.status.reason
        cloud.provider.faults = KIND
        await cloud.live(80)
        assert cloud.provider.shared.there() == list(KINDS)
        assert len(cloud.replicas(ReplicaState.READY)) == 4

    run_virtual(scenario())


def test_a_failing_prepare_backs_off_and_fails_no_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path)
        cloud.provider.shared.stuck.add("network")
        await cloud.live(60)
        assert 2 <= cloud.provider.calls["prepare"] <= 5
        assert "create" not in cloud.provider.calls
        assert cloud.status is not None
        assert cloud.status.reason == "no node is ordered until network is prepared: network is in use"
        assert all(lane.failures == 0 for lane in cloud.store.memory(FLEET).lanes.values())
        cloud.provider.shared.stuck.clear()
        await cloud.live(100)
        assert len(cloud.replicas(ReplicaState.READY)) == 4

    run_virtual(scenario())


def test_without_credentials_nothing_is_prepared_and_that_is_said_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path)
        cloud.provider.has_credentials = False
        await cloud.live(50)
        assert "prepare" not in cloud.provider.calls  # as a listing has been refused before it
        assert "create" not in cloud.provider.calls
        assert cloud.status is not None
        assert cloud.status.reason.startswith("the credentials have expired; log in again")
        cloud.provider.has_credentials = True
        await cloud.live(100)
        assert len(cloud.replicas(ReplicaState.READY)) == 4

    run_virtual(scenario())


def test_an_intent_left_open_is_carried_out_again_by_its_token(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path)
        await cloud.live(3)  # in the middle of the first prepare
        (intent,) = cloud.store.shared_intents(FLEET)
        assert intent.state is SharedState.PREPARING
        await cloud.live(60)
        after = {i.token: i.state for i in cloud.store.shared_intents(FLEET)}
        assert after[intent.token] is SharedState.PREPARED
        assert len(after) == len(KINDS)

    run_virtual(scenario())


def test_down_waits_for_the_teardown_and_the_fleet_is_not_forgotten_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path)
        await cloud.live(60)
        cloud.down()
        while cloud.provider.living():
            await cloud.live(2)
        with pytest.raises(StateError, match="3 shared resources"):
            cloud.store.remove_fleet(FLEET)
        await cloud.live(4)
        assert cloud.status is not None
        assert "role is being torn down" in cloud.status.reason
        assert fleet_condition(replace(cloud.status, gateway_alive=False)).type is ConditionType.STOPPING
        assert await cloud.live(120)
        await check_nothing_is_left(cloud)

    run_virtual(scenario())


def test_what_cannot_be_torn_down_leaves_a_tombstone_until_it_is_prepared_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path)
        await cloud.live(60)
        cloud.provider.shared.stuck.add("queue")
        cloud.down()
        assert not await cloud.live(SHARED_GIVEN_UP_S)
        assert await cloud.live(120)
        cloud.store.remove_fleet(FLEET)
        (tombstone,) = cloud.store.tombstones(FLEET)
        assert tombstone.shared is not None
        assert (tombstone.shared.kind, tombstone.token) == ("queue", tombstone.shared.token)
        assert cloud.provider.shared.there() == ["queue"]
        reasons = [e.reason for e in cloud.store.journal(FLEET, limit=10_000) if e.action == "abandon-shared"]
        assert len(reasons) == 1
        assert tombstone.token in reasons[0]
        cloud.provider.shared.stuck.clear()
        cloud.up(spot=1)
        await cloud.live(60)
        assert cloud.store.tombstones() == ()
        cloud.down()
        assert await cloud.live(120)
        await check_nothing_is_left(cloud)

    run_virtual(scenario())


def test_a_teardown_that_takes_effect_late_does_not_take_away_what_was_prepared_since(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, replace(KIND, create_s=60.0))
        await cloud.live(200)
        assert cloud.provider.shared.there() == list(KINDS)
        cloud.down()
        cloud.provider.faults = replace(KIND, create_s=60.0, cut=1.0)
        while not any(at > cloud.clock.now() for at, _, _ in cloud.provider.shared._changes):
            await cloud.live(10)
        cloud.provider.faults = replace(KIND, create_s=60.0)
        cloud.up(spot=1)
        await cloud.live(400)
        assert cloud.provider.shared.there() == list(KINDS)
        assert len(cloud.replicas(ReplicaState.READY)) == 4
        assert cloud.provider.shared.refusals == []

    run_virtual(scenario())

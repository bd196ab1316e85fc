"""The real controller on a cloud at its worst: slow, late, throttling, cut off, and itself killed at random steps."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl import codec
from fleetctl.model.catalogue import Market, OfferingKey
from fleetctl.model.node import BootProgress
from fleetctl.model.replica import ReplicaState
from fleetctl.testing import samples
from fleetctl.testing.fault_provider import CloudFaults
from fleetctl.testing.virtual_time import run_virtual
from fleetctl.views.canvas import UNICODE, Canvas
from fleetctl.views.replicas import REPLICAS_STATUS, replicas_table
from tests.controller.cloud_rig import Cloud
from tests.controller.rig import FLEET

if TYPE_CHECKING:
    from pathlib import Path

NOTICES = 25
SETTLED_S = 200.0  # by then whatever was cut off has had its effect
KIND = CloudFaults(
    list_s=0.2, list_lag_s=0.0, create_s=1.0, address_s=0.0, boot_s=2.0, stop_s=1.0,
    throttled=0.0, cut=0.0, partial=0.0, strangers=0,
)  # fmt: skip


async def check_nothing_is_left(cloud: Cloud) -> None:
    await cloud.clock.sleep(SETTLED_S)
    assert cloud.provider.living() == []
    assert cloud.replicas() == []
    assert cloud.store.open_intents(FLEET) == ()
    cloud.store.remove_fleet(FLEET)  # which refuses while anything lives


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1])
def test_300_slots_with_kills_leave_no_orphan_and_no_double(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        cloud = Cloud(tmp_path, seed, slots=300, tick_s=3.0)
        cloud.up(spot=100)
        for _ in range(25):
            await cloud.live(cloud.dice.uniform(1, 60), steps=cloud.dice.randrange(1, 600))
        noticing = asyncio.ensure_future(cloud.notice_now_and_then(10.0, 15.0))
        await cloud.live(1100, until=lambda: len(cloud.out_of_rotation_s) >= NOTICES)
        assert not noticing.done()
        noticing.cancel()
        # A start takes ten minutes there, and the last kill may have left the last orders to be made.
        await cloud.live(1800, until=lambda: len(cloud.replicas(ReplicaState.READY)) == 300)
        assert cloud.living_most <= 300
        assert len(cloud.replicas(ReplicaState.READY)) == 300
        by_replica = Counter(node.replica_id for node in cloud.provider.living())
        assert set(by_replica) == {r.id for r in cloud.replicas()}
        assert set(by_replica.values()) == {1}
        assert len(cloud.out_of_rotation_s) == NOTICES
        assert max(cloud.out_of_rotation_s) < 1.0
        cloud.down()
        for _ in range(5):
            if await cloud.live(cloud.dice.uniform(1, 60), steps=cloud.dice.randrange(1, 300)):
                break
        assert await cloud.live(1200), "it is not down"
        await check_nothing_is_left(cloud)
        cloud.store.close()

    run_virtual(scenario())


@pytest.mark.parametrize("seed", range(6))
def test_down_always_ends_wherever_up_and_down_are_killed(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        cloud = Cloud(tmp_path, seed, slots=24, faults=replace(CloudFaults(), cut=0.3), tick_s=2.0)
        cloud.up(spot=8)
        for _ in range(cloud.dice.randrange(1, 6)):
            await cloud.live(cloud.dice.uniform(1, 90), steps=cloud.dice.randrange(1, 250))
        assert cloud.living_most <= 24
        cloud.down()
        for _ in range(4):
            if await cloud.live(cloud.dice.uniform(1, 40), steps=cloud.dice.randrange(1, 120)):
                break
        assert await cloud.live(900), "it is not down"
        await check_nothing_is_left(cloud)
        cloud.store.close()

    run_virtual(scenario())


def on_cloud(home: Path, faults: CloudFaults, **changes: object) -> Cloud:
    cloud = Cloud(home, 7, slots=4, faults=faults, **changes)  # type: ignore[arg-type]
    cloud.up(spot=1)
    return cloud


def journal(cloud: Cloud, action: str) -> list[str]:
    return [e.reason for e in cloud.store.journal(FLEET, limit=10_000) if e.action == action]


def failures(cloud: Cloud) -> int:
    return sum(lane.failures for lane in cloud.store.memory(FLEET).lanes.values())


def test_a_create_of_70_s_ends_as_an_ordinary_replica(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, replace(KIND, create_s=70.0))
        await cloud.live(100)
        ready = cloud.replicas(ReplicaState.READY)
        assert len(ready) == 4
        assert all(r.node_id and r.host.startswith("10.") and r.port == 8000 for r in ready)
        assert cloud.store.open_intents(FLEET) == ()
        assert cloud.provider.calls["create"] == 1
        cloud.down()
        assert await cloud.live(60)
        await check_nothing_is_left(cloud)

    run_virtual(scenario())


def zone(offering: str) -> str:
    return OfferingKey.parse(offering).zone


def test_an_address_that_is_known_after_the_create_is_recorded_before_it_is_asked(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, replace(KIND, address_s=20.0), sold=SOLD)
        cloud.provider.shortages.add(("", "zone-a", ""))  # what is given is not what was ordered first
        await cloud.live(15)
        assert {(r.state, r.host) for r in cloud.replicas()} == {(ReplicaState.BOOTING, "")}
        assert "zone-a" in {zone(r.offering) for r in cloud.replicas()}
        assert cloud.hosts_probed == set()
        await cloud.live(30)
        ready = cloud.replicas(ReplicaState.READY)
        assert len(ready) == 4
        assert {r.host for r in ready} == {node.host for node in cloud.provider.living()} == cloud.hosts_probed
        assert {(zone(r.offering), r.price_usd_per_hour) for r in ready} == {("zone-b", PRICE_B_USD)}
        assert cloud.gateway.table is not None
        assert all(row.host for row in cloud.gateway.table.replicas)

    run_virtual(scenario())


def test_a_node_that_never_says_where_it_is_reached_is_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, replace(KIND, address_s=1e6))
        await cloud.live(1190)
        assert len(cloud.replicas(ReplicaState.BOOTING)) == 4
        await cloud.live(30)
        assert "not ready in 20m" in next(r.fault for r in cloud.store.replicas(FLEET) if r.fault)
        assert cloud.hosts_probed == set()

    run_virtual(scenario())


def test_the_status_shows_how_far_a_boot_has_come(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, replace(KIND, boot_s=60.0))
        await cloud.live(20)
        assert cloud.status is not None
        assert {r.pending_reason for r in cloud.status.replicas} == {"provisioning"}
        assert {r.boot for r in cloud.status.replicas} == {BootProgress(phase="provisioning")}
        raw = codec.encode(cloud.status)
        assert raw.count(b'"boot":{"phase":"provisioning"') == 4
        table = replicas_table(
            cloud.status, Canvas(width=200, marks=UNICODE), REPLICAS_STATUS, now=cloud.clock.now(), is_stale=False
        )
        assert str(table).count("provisioning ") == 4
        await cloud.live(60)
        assert {(r.pending_reason, r.boot) for r in cloud.status.replicas} == {("", None)}

    run_virtual(scenario())


def test_notices_that_do_not_come_are_in_the_status_while_they_do_not_and_one_break_is_not(tmp_path: Path) -> None:
    async def broken(cloud: Cloud, *, for_s: float) -> None:
        await cloud.clock.sleep(20.0)
        cloud.provider.events_fault = "sqs: AccessDenied"
        await cloud.clock.sleep(for_s)
        cloud.provider.events_fault = ""
        # The first that comes again is of a death.
        await cloud.clock.sleep(5.0)
        cloud.provider.end(cloud.provider.living()[0].token)

    async def is_in_status_after(cloud: Cloud, *, broken_s: float, lived_s: float) -> bool:
        breaking = asyncio.ensure_future(broken(cloud, for_s=broken_s))
        await cloud.live(lived_s)
        await breaking
        assert cloud.status is not None
        return "the provider's notices do not come" in cloud.status.reason

    async def scenario() -> None:
        cloud = on_cloud(tmp_path, KIND)
        assert not await is_in_status_after(cloud, broken_s=0.5, lived_s=40)
        assert await is_in_status_after(cloud, broken_s=30, lived_s=45)
        assert not await is_in_status_after(cloud, broken_s=30, lived_s=80)
        assert journal(cloud, "watch") == 3 * ["sqs: AccessDenied"]

    run_virtual(scenario())


def test_a_death_is_seen_in_listings_of_6_s(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, replace(KIND, list_s=6.0, strangers=1000))
        await cloud.live(60)
        dead = cloud.replicas(ReplicaState.READY)[0]
        cloud.provider.end(next(n.token for n in cloud.provider.living() if n.id == dead.node_id))
        await cloud.live(60)
        assert len(cloud.replicas(ReplicaState.READY)) == 4
        assert dead.id not in [r.id for r in cloud.replicas()]

    run_virtual(scenario())


def test_listings_that_lag_45_s_hide_no_node_from_down(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, replace(KIND, list_lag_s=45.0))
        await cloud.live(15)
        assert len(cloud.provider.living()) == 4
        cloud.down()
        assert await cloud.live(200)
        await check_nothing_is_left(cloud)

    run_virtual(scenario())


def test_what_was_only_believed_gone_has_a_tombstone_that_outlives_the_fleet(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, KIND)
        await cloud.live(20)
        first = min(cloud.provider.living(), key=lambda node: node.id)
        del cloud.provider._lives[first.token]  # neither listed nor known by its token any more
        cloud.down()
        assert await cloud.live(120)
        cloud.store.remove_fleet(FLEET)
        (tombstone,) = cloud.store.tombstones()
        assert (tombstone.token, tombstone.node_id, tombstone.fleet) == (first.token, first.id, FLEET)
        cloud.store.unbury(first.token)
        assert cloud.store.tombstones(FLEET) == ()

    run_virtual(scenario())


def test_throttling_fails_no_start_and_is_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, replace(KIND, throttled=0.9, retry_after_s=5.0))
        most = 0
        for _ in range(16):  # nine calls of ten are refused: one order had to wait for seven minutes
            await cloud.live(30)
            most = max(most, failures(cloud))
        assert most == 0
        assert len(cloud.replicas(ReplicaState.READY)) == 4
        assert [r for r in cloud.store.replicas(FLEET) if r.fault] == []

    run_virtual(scenario())


def test_a_stop_is_asked_for_once_per_deadline(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, replace(KIND, stop_s=1e6))
        await cloud.live(20)
        cloud.provider._stop = lambda node_id, grace_s: None  # type: ignore[method-assign]  # it says yes and does nothing
        cloud.down()
        await cloud.live(130)
        assert 4 <= cloud.provider.calls["stop"] <= 4 * 5
        assert len(cloud.store.journal(FLEET, limit=10_000)) < 200

    run_virtual(scenario())


def test_expired_credentials_stop_the_creates_and_are_said_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, KIND)
        await cloud.live(20)
        creates = cloud.provider.calls["create"]
        cloud.provider.has_credentials = False
        for node in cloud.provider.living()[:2]:
            cloud.provider.end(node.token)
        await cloud.live(55)
        assert cloud.provider.calls["create"] <= creates + 2
        assert cloud.status is not None
        assert cloud.status.reason.startswith("the credentials have expired; log in again")
        cloud.provider.has_credentials = True
        await cloud.live(120)
        assert len(cloud.replicas(ReplicaState.READY)) == 4

    run_virtual(scenario())


ZONES = ("zone-a", "zone-b")
PRICE_B_USD = 0.07
SOLD = tuple(
    replace(samples.offering(market=market, zone=zone), price_usd_per_hour=PRICE_B_USD if zone == "zone-b" else 0.06)
    for market in Market
    for zone in ZONES
)


def test_stock_is_avoided_by_what_the_error_names(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, KIND, sold=SOLD)
        cloud.provider.shortages.add(("", "zone-a", ""))
        await cloud.live(40)
        assert {node.zone for node in cloud.provider.living()} == {"zone-b"}
        assert all("/zone-b/" in r.offering for r in cloud.replicas(ReplicaState.READY))
        assert len(cloud.replicas(ReplicaState.READY)) == 4
        assert failures(cloud) == 0

    run_virtual(scenario())


def test_a_quota_is_named_and_shared_and_the_other_market_is_tried(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, KIND, sold=SOLD)
        cloud.provider.quotas["spot-nodes"] = 0
        await cloud.live(40)
        assert len(cloud.replicas(ReplicaState.READY)) == 4
        assert all(r.market is Market.ON_DEMAND for r in cloud.replicas())
        assert cloud.status is not None
        assert "quota spot-nodes" in cloud.status.reason

    run_virtual(scenario())


def test_an_on_demand_fallback_is_given_back_once_spot_is_there_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_cloud(tmp_path, KIND, sold=SOLD)
        cloud.provider.shortages.add(("", "", "spot"))
        await cloud.live(60)
        assert [r.market for r in cloud.replicas(ReplicaState.READY)] == [Market.ON_DEMAND] * 4
        await cloud.live(300)
        assert any("takes the place of" in reason for reason in journal(cloud, "launch"))
        assert len(cloud.replicas()) == 4, "an order that spot refuses costs nobody"
        assert failures(cloud) == 0
        cloud.provider.shortages.clear()
        await cloud.live(240)
        markets = sorted(r.market.value for r in cloud.replicas(ReplicaState.READY))
        assert markets == ["on-demand", "on-demand", "on-demand", "spot"]
        assert len(cloud.replicas()) == 4
        refused = [r for key, r in cloud.store.memory(FLEET).offerings.items() if key.endswith("/spot")]
        assert refused
        assert all(r.refused_at is not None for r in refused)

    run_virtual(scenario())


def test_nothing_is_awaited_in_a_tick(tmp_path: Path) -> None:
    """A provider that never answers at all: the controller decides, and shows what it knows."""

    async def scenario() -> None:
        cloud = on_cloud(tmp_path, replace(KIND, list_s=1e6, create_s=1e6))
        await cloud.live(5)
        assert cloud.status is not None
        assert "the provider is being asked what there is" in cloud.status.reason
        assert len(cloud.replicas(ReplicaState.PENDING)) in (0, 4)
        assert journal(cloud, "tick") == []

    run_virtual(scenario())

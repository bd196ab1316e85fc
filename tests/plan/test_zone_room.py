"""Where a cluster's zones have unlike numbers of GPUs, replicas go where some are left."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, strategies as st

from fleetctl.core.placement import RejectionCode, next_offering
from fleetctl.model.catalogue import Market, Offering
from fleetctl.model.profile import CapacitySpec
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.testing import samples

FREE = CapacitySpec(max_nodes=1000)
SHARE = samples.offering(price_usd_per_hour=0.0, pool_gpus=9, is_pool_of_all_zones=True)
LANE = replace(samples.lane_plan("all"), offering=SHARE)
ZONES = ("zone-a", "zone-b", "zone-c")


def offerings(*gpus: int | None) -> tuple[Offering, ...]:
    return tuple(replace(SHARE, zone=zone, zone_gpus=count) for zone, count in zip(ZONES, gpus, strict=False))


def held(offering: Offering, number: int, *, state: ReplicaState = ReplicaState.READY, node_count: int = 1) -> Replica:
    return samples.replica(
        id=f"all-{number}", lane="all", offering=offering.key, gpu=offering.gpu, state=state, node_count=node_count
    )


def zones_of(count: int, sold: tuple[Offering, ...]) -> list[str]:
    live: list[Replica] = []
    zones: list[str] = []
    for number in range(count):
        found = next_offering(LANE, live, Market.ON_DEMAND, sold, capacity=FREE).offering
        assert found is not None
        zones.append(found.zone)
        live.append(held(found, number))
    return zones


@given(st.lists(st.integers(min_value=0, max_value=6), min_size=2, max_size=3))
def test_no_zone_gets_more_than_its_gpus_while_another_has_some(gpus: list[int]) -> None:
    zones = zones_of(sum(gpus), offerings(*gpus))
    assert {zone: zones.count(zone) for zone in ZONES[: len(gpus)]} == dict(zip(ZONES, gpus, strict=False))


def test_where_all_are_taken_one_is_picked_all_the_same() -> None:
    assert len(zones_of(6, offerings(1, 2))) == 6


def test_what_tells_no_count_of_its_zone_is_as_before() -> None:
    zones = zones_of(6, offerings(None, None))
    assert (zones.count("zone-a"), zones.count("zone-b")) == (3, 3)


def test_what_is_full_is_named_and_what_has_ended_holds_nothing() -> None:
    sold = offerings(2, 9)
    live = [held(sold[0], 1, node_count=2), held(sold[1], 2), held(sold[1], 3), held(sold[1], 4)]
    found = next_offering(LANE, live, Market.ON_DEMAND, sold, capacity=FREE)
    assert found.offering == sold[1]
    rejection = found.rejected[sold[0].key]
    assert rejection.code is RejectionCode.NO_STOCK
    assert rejection.message == "takes 1 of the 2 L40S in its zone, and 2 are held"
    assert rejection.message in found.passed_over
    ended = [replace(live[0], state=ReplicaState.GONE), *live[1:]]
    assert next_offering(LANE, ended, Market.ON_DEMAND, sold, capacity=FREE).offering == sold[0]

"""An earlier lane's replica is ordered onto GPUs that are all taken, where its provider ends a later lane's for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.model.catalogue import Market
from fleetctl.model.decision import LaunchReplica
from fleetctl.model.desired import Desired, Overrides
from fleetctl.model.lane_priority import RANKS, lane_priority
from fleetctl.model.profile import ReplicaBounds
from fleetctl.model.replica import ReplicaState
from fleetctl.testing import samples
from tests.reconcile.worlds import decide, desired, lane_spec, observation, observed, of_kind, reason_of

if TYPE_CHECKING:
    from fleetctl.model.observation import ObservedReplica

LANES = ("short", "long", "batch")
SHARE = samples.offering(zone="a", price_usd_per_hour=0.0, pool_gpus=3, gpu_count=1, is_pool_of_all_zones=True)


def fleet(*, is_preemptive: bool = True, long_min: int = 1, wanted: dict[str, int]) -> Desired:
    """Return three lanes on a cluster of three GPUs."""
    minima = {"short": 1, "long": long_min, "batch": 1}
    specs = [
        replace(lane_spec(), name=name, interruptible=name == "batch", replicas=ReplicaBounds(min=minima[name], max=3))
        for name in LANES
    ]
    counts = dict.fromkeys(LANES, (3, 0))  # what is beyond would be ordered on spot
    found = desired(*specs, counts=counts, overrides=Overrides(replicas={**dict.fromkeys(LANES, 1), **wanted}))
    plans = [replace(lane, offering=replace(SHARE, is_preemptive=is_preemptive)) for lane in found.plan.lanes]
    return replace(found, plan=replace(found.plan, lanes=tuple(plans)))


def on(lane: str, replica_id: str, **changes: Any) -> ObservedReplica:
    return observed(replica_id, record_lane=lane, record_offering=SHARE.key, record_gpu_indices=(0,), **changes)


FULL = (on("short", "r1"), on("long", "r2"), on("batch", "r3"))


def launched(found: Desired, *replicas: ObservedReplica) -> list[LaunchReplica]:
    return of_kind(decide(found, observation(*replicas)), LaunchReplica)


def test_the_place_is_the_lanes_that_may_be_interrupted_and_the_launch_says_so() -> None:
    (launch,) = launched(fleet(wanted={"short": 2}), *FULL)
    assert launch.lane == "short"
    assert "no GPU is free, a replica of batch is preempted for it" in launch.reason


def test_without_a_scheduler_that_preempts_nothing_is_ordered_beyond_what_is_there() -> None:
    found = fleet(is_preemptive=False, wanted={"short": 2})
    assert launched(found, *FULL) == []


def test_no_more_is_ordered_than_makes_room() -> None:
    assert len(launched(fleet(wanted={"short": 3}), *FULL)) == 1
    coming = on("short", "r4", state=ReplicaState.BOOTING)
    assert launched(fleet(wanted={"short": 3}), *FULL, coming) == []


def test_whoever_was_preempted_is_not_ordered_again_and_is_told_who_has_the_place() -> None:
    found = fleet(wanted={"short": 2})
    there = (on("short", "r1"), on("long", "r2"), on("short", "r4"))
    assert launched(found, *there) == []
    reason = reason_of(decide(found, observation(*there)), "batch")
    assert "of the cluster's 3 L40S none are free (short 2, long 1), and a replica takes 1" in reason


@pytest.mark.parametrize(("long_min", "launches"), [(1, 1), (2, 0)])
def test_a_lane_that_may_not_be_interrupted_keeps_its_minimum(long_min: int, launches: int) -> None:
    there = (on("short", "r1"), on("long", "r2"), on("long", "r3"))
    found = fleet(long_min=long_min, wanted={"short": 2, "long": 2, "batch": 0})
    assert len(launched(found, *there)) == launches


def test_a_lane_preempts_none_before_it_and_none_of_the_other_market() -> None:
    assert launched(fleet(wanted={"batch": 2}), *FULL) == []
    on_spot = on("batch", "r3", record_market=Market.SPOT)
    assert launched(fleet(wanted={"short": 2}), *FULL[:2], on_spot) == []


@pytest.mark.parametrize(("of_all_zones", "launches"), [(True, 0), (False, 1)])
def test_a_clusters_gpus_are_counted_over_its_zones_and_a_machines_by_machine(
    of_all_zones: bool, launches: int
) -> None:
    share = replace(SHARE, is_pool_of_all_zones=of_all_zones)
    found = fleet(is_preemptive=False, wanted={"short": 2, "long": 1, "batch": 0})
    lanes = tuple(replace(lane, offering=share) for lane in found.plan.lanes)
    elsewhere = replace(SHARE, zone="b").key
    there = (
        on("short", "r1"),
        on("long", "r2"),
        observed("r3", record_lane="long", record_offering=elsewhere, record_gpu_indices=(0,)),
    )
    assert len(launched(replace(found, plan=replace(found.plan, lanes=lanes)), *there)) == launches


def test_nobody_is_preempted_in_another_zone() -> None:
    found = fleet(wanted={"short": 2})
    lanes = tuple(
        replace(lane, offering=replace(lane.offering, is_pool_of_all_zones=True)) for lane in found.plan.lanes
    )
    elsewhere = observed(
        "r3", record_lane="batch", record_offering=replace(SHARE, zone="b").key, record_gpu_indices=(0,)
    )
    assert launched(replace(found, plan=replace(found.plan, lanes=lanes)), *FULL[:2], elsewhere) == []


def test_priorities_fall_with_the_place_and_those_that_may_be_interrupted_are_last() -> None:
    ranks = [lane_priority(rank, is_interruptible=False) for rank in range(RANKS + 2)]
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) == RANKS
    assert lane_priority(0, is_interruptible=True) < min(ranks)

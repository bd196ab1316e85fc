"""Orders that are late: another is placed in their stead, elsewhere; they are taken in if they come, and never without end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.core.boot_times import late_after_s
from fleetctl.model.decision import AdmitReplica, LaneMemory, LaunchReplica, Memory, StopReplica
from fleetctl.model.profile import CapacitySpec
from fleetctl.model.replica import ReplicaState
from fleetctl.testing import samples
from tests.reconcile import worlds
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, reason_of

if TYPE_CHECKING:
    from fleetctl.model.decision import Decision
    from fleetctl.model.observation import ObservedReplica

BOOT_S = 100.0
WANTED = 3
FLEET = worlds.one_lane(2)


def serving(replica_id: str, boot_s: float = BOOT_S) -> ObservedReplica:
    return observed(replica_id, record_ready_at=at(boot_s))


TWO = (serving("r1"), serving("r2"))


def coming(
    replica_id: str, age_s: float, state: ReplicaState = ReplicaState.BOOTING, **changes: Any
) -> ObservedReplica:
    created = at(3600 - age_s)
    return observed(replica_id, state, record_created_at=created, record_changed_at=created, **changes)


def remembering(wanted: int = WANTED) -> Memory:
    return Memory(lanes={"short": LaneMemory(wanted=wanted, planned=2, requested=2, had_ready=2)})


def step(*seen: ObservedReplica, wanted: int = WANTED, **changes: Any) -> Decision:
    busy = worlds.snapshot(worlds.traffic("short", rps=float(wanted)))
    return decide(changes.pop("fleet", FLEET), observation(*seen, gateway=busy, **changes), remembering(wanted))


def test_another_is_ordered_in_the_stead_of_one_that_is_far_behind_the_boots_measured():
    decision = step(*TWO, coming("r3", 151.0))
    (order,) = of_kind(decision, LaunchReplica)
    assert "r3 late" in order.reason
    assert f"late since their order: r3 on {samples.offering().key} 2m31s" in reason_of(decision, "short")
    assert decision.inputs["short"]["late"] == 1


def test_an_ordinary_slow_boot_is_waited_for():
    assert not of_kind(step(*TWO, coming("r3", 149.0)), LaunchReplica)
    assert not of_kind(step(serving("r1"), serving("r2", 190.0), coming("r3", 205.0)), LaunchReplica)


def test_the_one_in_its_stead_is_waited_for_in_turn():
    assert not of_kind(step(*TWO, coming("r3", 200.0), coming("r4", 40.0)), LaunchReplica)


def test_one_that_comes_late_is_taken_in_and_the_one_in_its_stead_given_back():
    warm = coming("r3", 200.0, ReplicaState.WARMING, warmed=True, warming=False)
    decision = step(*TWO, warm, coming("r4", 40.0))
    assert [action.replica_id for action in of_kind(decision, AdmitReplica)] == ["r3"]
    assert [action.replica_id for action in of_kind(decision, StopReplica)] == ["r4"]


def test_the_one_in_its_stead_is_admitted_before_anything_is_given_up():
    warm = coming("r4", 100.0, ReplicaState.WARMING, warmed=True, warming=False)
    decision = step(*TWO, coming("r3", 300.0), warm)
    assert [action.replica_id for action in of_kind(decision, AdmitReplica)] == ["r4"]
    assert not of_kind(decision, StopReplica)


def test_one_that_is_late_is_ended_once_the_one_in_its_stead_serves():
    decision = step(*TWO, serving("r4"), coming("r3", 400.0))
    assert [action.replica_id for action in of_kind(decision, StopReplica)] == ["r3"]


def test_where_nothing_comes_orders_are_not_placed_without_end():
    late = [coming(f"r{number}", 900.0 - number) for number in range(3, 6)]
    assert len(of_kind(step(*TWO, *late[:2]), LaunchReplica)) == 1
    assert not of_kind(step(*TWO, *late), LaunchReplica)


def test_the_fleets_caps_count_what_is_late():
    capped = replace(FLEET, profile=replace(FLEET.profile, capacity=CapacitySpec(max_nodes=3)))
    decision = step(*TWO, coming("r3", 200.0), fleet=capped)
    assert not of_kind(decision, LaunchReplica)
    assert "cap of 3 nodes" in reason_of(decision, "short")


def test_a_lane_that_nobody_has_served_yet_waits_for_its_first_replicas():
    seen = observation(coming("r1", 500.0), coming("r2", 500.0))
    fresh = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})
    assert not of_kind(decide(FLEET, seen, fresh), LaunchReplica)


def test_an_order_that_the_provider_was_not_asked_for_is_not_late():
    waiting = coming("r3", 400.0, ReplicaState.PENDING, was_requested=False)
    assert not of_kind(step(*TWO, waiting), LaunchReplica)


def test_the_order_says_where_one_is_late():
    (order,) = of_kind(step(*TWO, coming("r3", 200.0)), LaunchReplica)
    assert order.late == (samples.offering().key,)


@pytest.mark.parametrize(
    ("own", "offerings", "late_s"),
    [
        ((100.0, 120.0), {}, 165.0),
        ((100.0, 240.0), {}, 264.0),
        ((), {samples.offering().key: 90.0}, 135.0),
        ((), {}, 240.0),
        ((2.0,), {}, 60.0),
    ],
)
def test_late_is_beyond_what_was_measured_with_its_spread_or_well_beyond_the_plan(
    own: tuple[float, ...], offerings: dict[str, float], late_s: float
) -> None:
    plan = replace(samples.lane_plan("short"), offering=replace(samples.offering(), boot_s=120.0))
    lane = [serving(f"r{number}", boot_s).record for number, boot_s in enumerate(own)]
    assert late_after_s(plan, lane, offerings)(samples.replica("r9")) == pytest.approx(late_s)

"""A lane's size: by plan, by hand, by load; held by the clock, never by ticks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.core.demand import replicas_needed
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import DrainReplica, LaneMemory, LaunchReplica, Memory, StopReplica
from fleetctl.model.desired import Overrides
from fleetctl.model.plan import Constraint
from fleetctl.model.profile import ControlSpec
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Validity
from fleetctl.testing import samples

if TYPE_CHECKING:
    from fleetctl.model.decision import Decision
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import ObservedReplica
from tests.reconcile import worlds
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, reason_of, snapshot, traffic

# The sample plan: 2 rps on two replicas, so one replica is planned for 1 rps.
PLANNED = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})
TWO = (observed("r1"), observed("r2"))


def step(fleet: Desired, memory: Memory, now_s: float, *replicas: ObservedReplica, **figures: Any) -> Decision:
    gateway = snapshot(traffic("short", **figures), now_s=now_s)
    return decide(fleet, observation(*replicas, gateway=gateway, now_s=now_s), memory)


def test_a_late_lane_grows_by_one_after_the_wait_and_says_by_which_figure():
    fleet = worlds.one_lane(2)
    first = step(fleet, PLANNED, 3600, *TWO, wait_s=1.8)
    assert of_kind(first, LaunchReplica) == []
    second = step(fleet, first.memory, 3611, *TWO, wait_s=1.8)
    launch = of_kind(second, LaunchReplica)[0]
    assert "wait P99 1.8s > 240ms for 11s; 2 ready, 0 pending" in launch.reason
    assert second.memory.lanes["short"].wanted == 3


def test_a_dip_below_the_limit_starts_the_wait_afresh():
    fleet = worlds.one_lane(2)
    memory = step(fleet, PLANNED, 3600, *TWO, ttft_s=0.5).memory
    memory = step(fleet, memory, 3608, *TWO, ttft_s=0.1).memory
    memory = step(fleet, memory, 3609, *TWO, ttft_s=0.5).memory
    assert step(fleet, memory, 3612, *TWO, ttft_s=0.5).memory.lanes["short"].wanted == 2


def test_a_replica_on_its_way_is_waited_for():
    fleet = worlds.one_lane(2)
    memory = Memory(lanes={"short": LaneMemory(wanted=3, planned=2, requested=2, up_since=at(3000))})
    seen = (*TWO, observed("r3", ReplicaState.BOOTING))
    decision = step(fleet, memory, 3600, *seen, ttft_s=0.9)
    assert decision.memory.lanes["short"].wanted == 3
    assert "2 of 3 ready, 1 pending" in reason_of(decision, "short")


def test_offered_load_asks_for_as_many_as_it_needs_at_once():
    fleet = worlds.one_lane(2)
    memory = step(fleet, PLANNED, 3600, *TWO, rps=5.0).memory
    decision = step(fleet, memory, 3610, *TWO, rps=5.0)
    assert len(of_kind(decision, LaunchReplica)) == 3
    assert "5 rps offered needs 5" in reason_of(decision, "short")


def test_refused_requests_press_though_the_served_ones_are_quick():
    fleet = worlds.one_lane(2)
    memory = step(fleet, PLANNED, 3600, *TWO, ttft_s=0.1, shed={"predicted-wait": 2}).memory
    decision = step(fleet, memory, 3610, *TWO, ttft_s=0.1, shed={"predicted-wait": 2})
    assert "20% of requests refused" in of_kind(decision, LaunchReplica)[0].reason


def test_a_clients_own_fault_is_no_demand():
    fleet = worlds.one_lane(2)
    memory = step(fleet, PLANNED, 3600, *TWO, ttft_s=0.1, shed={"no-lane": 5}).memory
    assert of_kind(step(fleet, memory, 3620, *TWO, ttft_s=0.1, shed={"no-lane": 5}), LaunchReplica) == []


def test_few_samples_decide_nothing_but_the_oldest_waiting_request_does():
    fleet = worlds.one_lane(2)
    few = step(fleet, PLANNED, 3600, *TWO, ttft_s=5.0, samples_count=9)
    assert few.memory.lanes["short"].up_since is None
    waiting = step(fleet, PLANNED, 3600, *TWO, samples_count=9, queued=1, oldest_wait_s=0.4)
    assert waiting.memory.lanes["short"].up_since is not None
    assert "oldest wait 400ms > 240ms" in reason_of(waiting, "short")


@pytest.mark.parametrize(("which", "name"), [(0, "ttft P99"), (1, "itl P99")])
def test_few_samples_that_are_surely_late_grow_the_lane_whichever_target_they_are_of(which: int, name: str) -> None:
    fleet = worlds.one_lane(2)
    target = fleet.profile.lanes[0].slo.targets[which]
    figures: dict[str, Any] = {"samples_count": 7, "late": {target: 4 * target.limit_s}}
    first = step(fleet, PLANNED, 3600, *TWO, **figures)
    assert first.memory.lanes["short"].breach is not None
    second = step(fleet, first.memory, 3611, *TWO, **figures)
    assert f"{name} " in of_kind(second, LaunchReplica)[0].reason
    breach = second.memory.lanes["short"].breach
    assert breach is not None
    assert breach.since == at(3600)
    after = step(fleet, second.memory, 3612, *TWO, samples_count=7).memory.lanes["short"].breach
    assert after is not None
    assert after.ended_at == at(3612)


def test_a_fast_burning_budget_grows_the_lane_without_waiting():
    fleet = worlds.one_lane(2)
    decision = step(fleet, PLANNED, 3600, *TWO, ttft_s=0.5, bad=20)
    assert len(of_kind(decision, LaunchReplica)) == 1
    assert "burn 20.0x" in reason_of(decision, "short")


def test_it_never_grows_beyond_the_lanes_bounds():
    fleet = worlds.one_lane(2, bounds=(1, 2))
    memory = step(fleet, PLANNED, 3600, *TWO, ttft_s=0.9, rps=50).memory
    decision = step(fleet, memory, 3700, *TWO, ttft_s=0.9, rps=50)
    assert of_kind(decision, LaunchReplica) == []
    assert "at the lane's bound 2" in reason_of(decision, "short")


def test_a_calm_lane_gives_up_one_replica_after_the_wait():
    fleet = worlds.one_lane(2)
    first = step(fleet, PLANNED, 3600, *TWO, rps=0.1)
    assert "one less in 5m" in reason_of(first, "short")
    early = step(fleet, first.memory, 3899, *TWO, rps=0.1)
    assert of_kind(early, DrainReplica) == []
    drained = of_kind(step(fleet, early.memory, 3900, *TWO, rps=0.1), DrainReplica)
    assert [a.replica_id for a in drained] == ["r2"]


def test_it_gives_up_spot_before_on_demand_and_the_unready_before_all():
    fleet = worlds.one_lane(1, spot=1)
    memory = Memory(lanes={"short": LaneMemory(wanted=1, planned=2, requested=2)})
    spot = observed("r1", record_market=Market.SPOT)
    decision = step(fleet, memory, 3600, spot, observed("r2"), rps=0.1)
    assert [a.replica_id for a in of_kind(decision, DrainReplica)] == ["r1"]
    booting = observed("r3", ReplicaState.BOOTING)
    decision = step(fleet, memory, 3600, observed("r2"), booting, rps=0.1)
    assert [a.replica_id for a in of_kind(decision, StopReplica)] == ["r3"]


@pytest.mark.parametrize(
    ("figures", "message"),
    [({"rps": 1.5}, "1.5 rps offered needs 2"), ({"rps": 0.5, "ttft_s": 0.15}, "too near the limit")],
)
def test_it_never_shrinks_below_what_the_load_needs(figures, message):
    fleet = worlds.one_lane(2)
    memory = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2, down_since=at(0))})
    decision = step(fleet, memory, 3600, *TWO, **figures)
    assert decision.memory.lanes["short"].wanted == 2
    assert message in reason_of(decision, "short")


def test_stale_figures_hold_the_size():
    fleet = worlds.one_lane(2)
    memory = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2, up_since=at(0))})
    gateway = snapshot(traffic("short", ttft_s=9.0, rps=50), now_s=3600)
    seen = observation(*TWO, gateway=gateway, gateway_validity=Validity.STALE)
    decision = decide(fleet, seen, memory)
    assert decision.actions == ()
    assert "held: gateway figures are stale" in reason_of(decision, "short")


def test_scale_by_hand_wins_inside_the_bounds():
    fleet = worlds.one_lane(2, bounds=(1, 3), overrides=Overrides(replicas={"short": 9}))
    decision = step(fleet, PLANNED, 3600, *TWO, rps=0.0)
    assert len(of_kind(decision, LaunchReplica)) == 1
    assert "9 set by an operator, held to the lane's bounds 1-3" in reason_of(decision, "short")


def test_when_the_override_ends_the_plan_counts_again():
    overridden = worlds.one_lane(2, overrides=Overrides(replicas={"short": 4}))
    memory = step(overridden, PLANNED, 3600, *TWO).memory
    assert step(worlds.one_lane(2), memory, 3601, *TWO).memory.lanes["short"].wanted == 2


def test_a_new_plan_replaces_what_load_had_made_of_the_old_one():
    memory = Memory(lanes={"short": LaneMemory(wanted=5, planned=2, requested=2)})
    assert step(worlds.one_lane(3), memory, 3600, *TWO).memory.lanes["short"].wanted == 3


def test_need_follows_the_plan_where_load_set_it_and_the_knee_where_a_minimum_did():
    plan = samples.lane_plan("short")
    assert [replicas_needed(plan, rps) for rps in (0.0, 0.5, 1.0, 2.0, 2.1)] == [0, 1, 1, 2, 3]
    by_minimum = replace(plan, constraint=Constraint.MINIMUM)
    assert replicas_needed(by_minimum, 3.5) == 2


def test_a_young_gateway_rates_are_over_its_own_life():
    fleet = worlds.one_lane(2, control=ControlSpec(scale_up_after_s=0.0))
    gateway = replace(snapshot(traffic("short", rps=0.5), now_s=3600), started_at=at(3595))
    decision = decide(fleet, observation(*TWO, gateway=gateway), PLANNED)
    assert decision.inputs["short"]["offered_rps"] == pytest.approx(6.0)

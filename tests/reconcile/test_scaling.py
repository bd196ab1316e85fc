"""A lane's size: by plan, by hand, by load; held by the clock, never by ticks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from fleetctl.core.demand import replicas_needed
from fleetctl.model.arrivals import ArrivalHistory
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import DrainReplica, LaneMemory, LaunchReplica, Memory, StopReplica
from fleetctl.model.desired import Overrides
from fleetctl.model.observation import EngineSignals
from fleetctl.model.plan import Constraint, ReplicaThroughput
from fleetctl.model.profile import ControlSpec, ReplicaBounds
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Validity
from fleetctl.model.subject import Subject
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
    seen = (*TWO, observed("r3", ReplicaState.BOOTING, record_created_at=at(3580)))
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


def test_a_calm_lane_goes_straight_down_to_what_the_calm_needed():
    fleet = worlds.one_lane(4, bounds=(1, 8))
    four = tuple(observed(f"r{n}") for n in range(1, 5))
    memory = Memory(lanes={"short": LaneMemory(wanted=4, planned=4, requested=4)})
    first = step(fleet, memory, 3600, *four, rps=0.4)
    assert "4 were needed 0s ago: given up in 2m" in reason_of(first, "short")
    assert ReasonCode.BURST_MEMORY in {reason.code for reason in first.reasons[Subject.lane("short")]}
    early = step(fleet, first.memory, 3719, *four, rps=0.4)
    assert of_kind(early, DrainReplica) == []
    drained = of_kind(step(fleet, early.memory, 3720, *four, rps=0.4), DrainReplica)
    assert {a.replica_id for a in drained} == {"r2", "r3", "r4"}


@pytest.mark.parametrize(
    ("counts", "wanted"), [((2, 2, 3, 4, 5, 6, 8, 9), 4), ((4, 3, 5, 4, 4, 3, 5, 4), 1), ((9, 8, 6, 5, 4, 3, 2, 2), 1)]
)
def test_nothing_is_given_up_while_the_load_rather_rises(counts: tuple[int, ...], wanted: int) -> None:
    fleet = worlds.one_lane(4, bounds=(1, 8))
    four = tuple(observed(f"r{n}") for n in range(1, 5))
    memory = Memory(lanes={"short": LaneMemory(wanted=4, planned=4, requested=4)})
    calm = step(fleet, memory, 3600, *four, rps=0.4).memory.lanes["short"]
    calm = replace(calm, arrivals=ArrivalHistory(counts=counts, until=at(3715)))
    decision = step(fleet, Memory(lanes={"short": calm}), 3720, *four, rps=0.4)
    assert decision.memory.lanes["short"].wanted == wanted
    assert ("it rather rises" in reason_of(decision, "short")) is (wanted == 4)


def test_what_the_plan_has_is_no_burst():
    fleet = worlds.one_lane(2, bounds=(1, 4))
    memory = step(fleet, Memory(), 3600, *TWO[:1], rps=0.0).memory
    memory = step(fleet, memory, 3601, *TWO, rps=0.0).memory
    reason = reason_of(step(fleet, memory, 3602, *TWO, rps=0.0), "short")
    assert "2 are planned for the peak" in reason
    assert "burst" not in reason
    assert "given up in" in reason


@pytest.mark.parametrize(
    ("rps", "kept"),
    [(0.4, "4 were needed in a burst 2m30s ago: given up in 27m30s"), (2.0, "no more than 2 needed for 2m")],
)
def test_what_refusals_ask_for_far_beyond_the_rate_is_kept_as_a_burst_is(rps: float, kept: str) -> None:
    """Forty requests in a moment every twenty seconds are few a minute: no rate says what they need."""
    fleet = worlds.one_lane(1, bounds=(1, 8))
    memory = Memory(lanes={"short": LaneMemory(wanted=4, planned=1, requested=4)})
    four = tuple(observed(f"r{n}") for n in range(1, 5))
    for now_s, shed in ((3600, {"predicted-wait": 2}), (3610, {}), (3680, {})):
        memory = step(fleet, memory, now_s, *four, rps=rps, shed=shed).memory
    assert kept in reason_of(step(fleet, memory, 3750, *four, rps=rps), "short")


def test_calm_lasts_as_long_as_a_replica_takes_to_come_back():
    fleet = worlds.one_lane(2)
    key = fleet.plan.lane("short").offering.key
    gateway = snapshot(traffic("short", rps=0.1), now_s=3600)
    decision = decide(fleet, observation(*TWO, gateway=gateway, boot_s={key: 600.0}), PLANNED)
    assert "given up in 10m" in reason_of(decision, "short")


@pytest.mark.parametrize(("e2e_s", "left"), [(None, "2m"), (32.0, "2m"), (240.0, "3m")])
def test_calm_lasts_longer_than_the_number_of_long_requests_is_low_by_chance(e2e_s: float | None, left: str) -> None:
    decision = step(worlds.one_lane(2), PLANNED, 3600, *TWO, rps=0.1, e2e_s=e2e_s)
    assert f"given up in {left}" in reason_of(decision, "short")


def test_what_was_given_up_and_is_lacking_again_is_kept_twice_as_long():
    fleet = worlds.one_lane(2, control=ControlSpec(scale_up_after_s=0.0))
    memory = PLANNED
    for now_s, rps in ((3600, 1.6), (3700, 0.4), (3900, 0.4)):
        memory = step(fleet, memory, now_s, *TWO, rps=rps).memory
    assert memory.lanes["short"].wanted == 1
    memory = step(fleet, memory, 4000, *TWO[:1], rps=1.6, shed={"predicted-wait": 2}).memory
    assert memory.lanes["short"].bursts.regrets == 1
    decision = step(fleet, memory, 4010, *TWO, rps=0.4)
    assert "given up in 4m" in reason_of(decision, "short")
    assert "given up too soon 1x" in reason_of(decision, "short")
    hours_later = step(fleet, memory, 4000 + 3601, *TWO, rps=0.4).memory.lanes["short"].bursts
    assert hours_later.regrets == 0


def test_what_a_plan_gives_is_kept_until_it_has_served_for_as_long_as_a_burst_is_remembered():
    fleet, memory = worlds.one_lane(2), Memory()
    for now_s in range(3600, 4100, 20):
        memory = step(fleet, memory, now_s, observed("r1"), observed("r2", ReplicaState.BOOTING), rps=0.1).memory
        assert memory.lanes["short"].wanted == 2
    for now_s in range(4100, 4100 + 1800, 20):
        memory = step(fleet, memory, now_s, *TWO, rps=0.1).memory
        assert memory.lanes["short"].wanted == 2
    assert step(fleet, memory, 4100 + 1820, *TWO, rps=0.1).memory.lanes["short"].wanted == 1


def test_noise_within_what_the_count_may_vary_by_chance_orders_nothing():
    fleet = worlds.one_lane(2, control=ControlSpec(scale_up_after_s=0.0))
    assert step(fleet, PLANNED, 3600, *TWO, rps=2.15).memory.lanes["short"].wanted == 2
    assert step(fleet, PLANNED, 3600, *TWO, rps=2.5).memory.lanes["short"].wanted == 3


def test_from_zero_replicas_the_first_request_orders_one_at_once():
    spec = worlds.lane_spec(replicas=ReplicaBounds(min=0, max=4))
    fleet = worlds.desired(spec, counts={"short": (1, 0)})
    memory = Memory(lanes={"short": LaneMemory(wanted=0, planned=1)})
    for figures in ({"rps": 0.02, "queued": 1}, {"rps": 0.1, "shed": {"no-replica": 1}}):
        decision = step(fleet, memory, 3600, **figures)
        assert len(of_kind(decision, LaunchReplica)) == 1
        assert "and nobody serves" in reason_of(decision, "short")


def test_a_new_plan_for_none_does_not_keep_those_waiting_who_are_there_already():
    spec = worlds.lane_spec(replicas=ReplicaBounds(min=0, max=4))
    fleet = worlds.desired(spec, counts={"short": (0, 0)})
    decision = step(fleet, Memory(), 3600, rps=0.02, queued=1)
    assert len(of_kind(decision, LaunchReplica)) == 1
    assert step(fleet, Memory(), 3600, rps=0.0).memory.lanes["short"].wanted == 0


def test_longer_prompts_are_more_work_and_said_so():
    fleet = worlds.one_lane(2, control=ControlSpec(scale_up_after_s=0.0))
    plan = fleet.plan.lanes[0]
    shape = ReplicaThroughput(rps=1.0, prompt_share=0.8, output_share=0.1)
    fleet = replace(fleet, plan=replace(fleet.plan, lanes=(replace(plan, throughput=shape),)))

    def wanted(prompt_factor: float) -> tuple[int, str]:
        lane = traffic("short", rps=2.0)
        tokens: dict[str, Any] = {
            "finished": 1000, "prompt_tokens": round(1000 * plan.prompt_tokens_mean * prompt_factor),
            "output_tokens": round(9000 * plan.output_tokens_mean),
            "finished_output_tokens": round(1000 * plan.output_tokens_mean),
        }  # fmt: skip
        lane = replace(lane, windows=tuple(msgspec.structs.replace(window, **tokens) for window in lane.windows))
        decision = decide(fleet, observation(*TWO, gateway=snapshot(lane)), PLANNED)
        return decision.memory.lanes["short"].wanted, reason_of(decision, "short")

    assert wanted(1.0)[0] == 2
    assert wanted(2.0)[0] == 4
    assert "840 + 180 tokens each cost 1.8x a planned one, needs 4" in wanted(2.0)[1]


def test_a_full_kv_cache_grows_the_lane_and_keeps_it():
    def full(usage: float) -> tuple[ObservedReplica, ...]:
        signals = EngineSignals(validity=Validity.OK, at=at(3600), running=3, kv_usage=usage)
        return tuple(observed(f"r{n}", engine=signals) for n in (1, 2))

    fleet = worlds.one_lane(2, control=ControlSpec(scale_up_after_s=0.0))
    decision = step(fleet, PLANNED, 3600, *full(0.98), rps=0.5)
    assert decision.memory.lanes["short"].wanted == 3
    assert "KV cache 98% > 95%" in reason_of(decision, "short")
    memory = step(fleet, PLANNED, 3600, *full(0.6), rps=0.5).memory
    assert "KV cache 60% <= 95%; 1 would be too near" in reason_of(
        step(fleet, memory, 3800, *full(0.6), rps=0.5), "short"
    )


def test_refusals_ask_for_the_capacity_that_they_lack():
    fleet = worlds.one_lane(4, bounds=(1, 12), control=ControlSpec(scale_up_after_s=0.0))
    memory = Memory(lanes={"short": LaneMemory(wanted=4, planned=4, requested=4)})
    four = tuple(observed(f"r{n}") for n in range(1, 5))
    decision = step(fleet, memory, 3600, *four, rps=1.0, shed={"predicted-wait": 4})
    assert decision.memory.lanes["short"].wanted == 7


@pytest.mark.parametrize(("spot", "boot_s", "wanted"), [(0, 600.0, 1), (1, 600.0, 2), (1, 60.0, 1)])
def test_a_lane_on_spot_keeps_one_more_than_the_load_needs_where_losses_would_break_its_promise(spot, boot_s, wanted):
    fleet = worlds.one_lane(3 - spot, spot)
    market = Market.SPOT if spot else Market.ON_DEMAND
    three = (*TWO, observed("r3", record_market=market, record_offering=f"g6e.xlarge/zone-a/{market.value}"))
    memory = Memory(lanes={"short": LaneMemory(wanted=3, planned=3, requested=3)})
    boots = {fleet.plan.lane("short").offering.key: boot_s}
    reason = ""
    for now_s in (3600, 3600 + 3 * 600):
        gateway = snapshot(traffic("short", rps=0.5), now_s=now_s)
        decision = decide(fleet, observation(*three, gateway=gateway, now_s=now_s, boot_s=boots), memory)
        memory, reason = decision.memory, reason_of(decision, "short")
    assert memory.lanes["short"].wanted == wanted
    assert ("one spare: 1 on spot would leave it one short 1.1" in reason) is (wanted == 2)


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
    [({"rps": 1.5}, "1.5 rps offered needs 2"), ({"rps": 0.5, "wait_s": 0.15}, "too near the limit")],
)
def test_it_never_shrinks_below_what_the_load_needs(figures: dict[str, Any], message: str) -> None:
    fleet = worlds.one_lane(2)
    memory = step(fleet, PLANNED, 3600, *TWO, **figures).memory
    decision = step(fleet, memory, 3900, *TWO, **figures)
    assert decision.memory.lanes["short"].wanted == 2
    assert message in reason_of(decision, "short")


def test_a_ttft_of_long_prompts_keeps_no_replica_that_the_load_does_not_need():
    # Its floor is prefill, which is the same on any number of replicas.
    fleet = worlds.one_lane(2)
    memory = step(fleet, PLANNED, 3600, *TWO, rps=0.5, ttft_s=0.28).memory
    assert step(fleet, memory, 3900, *TWO, rps=0.5, ttft_s=0.28).memory.lanes["short"].wanted == 1


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
    measured = replace(plan, throughput=ReplicaThroughput(rps=1.4, prompt_share=1.0, output_share=0.0))
    assert [replicas_needed(measured, rps) for rps in (1.4, 2.8, 2.9)] == [1, 2, 3]


def test_a_young_gateway_rates_are_over_its_own_life():
    fleet = worlds.one_lane(2, control=ControlSpec(scale_up_after_s=0.0))
    gateway = replace(snapshot(traffic("short", rps=0.5), now_s=3600), started_at=at(3595))
    decision = decide(fleet, observation(*TWO, gateway=gateway), PLANNED)
    assert decision.inputs["short"]["offered_rps"] == pytest.approx(6.0)


def test_a_refusal_within_what_the_objective_allows_orders_no_replica():
    fleet = worlds.one_lane(2)
    memory, busy = PLANNED, {"rps": 1.9, "ttft_s": 0.1}
    # One of 19 in ten seconds, and none of the hundreds in the minutes before: the objective is 99.5 %.
    for second in range(0, 30, 2):
        shed = {10.0: {"predicted-wait": 1}} if second < 12 else {}
        memory = step(fleet, memory, 3600 + second, *TWO, shed_in=shed, **busy).memory
        assert memory.lanes["short"].wanted == 2
    many = {300.0: {"predicted-wait": 9}}
    memory = step(fleet, memory, 3640, *TWO, shed_in=many, **busy).memory
    decision = step(fleet, memory, 3650, *TWO, shed_in=many, **busy)
    assert "1.6% of requests refused over 5m" in of_kind(decision, LaunchReplica)[0].reason


def test_what_fewer_replicas_were_late_with_orders_no_more_once_another_serves():
    fleet = worlds.one_lane(2)
    late = {"wait_s": 1.8, "samples_count": 200, "rps": 1.5}
    memory = step(fleet, PLANNED, 3600, *TWO, **late).memory
    memory = step(fleet, memory, 3611, *TWO, **late).memory
    assert memory.lanes["short"].wanted == 3
    three = (*TWO, observed("r3"))
    for second in (3700, 3705, 3709):
        decision = step(fleet, memory, second, *three, **late)
        memory = decision.memory
        assert of_kind(decision, LaunchReplica) == []
    for second in (3711, 3722):
        memory = step(fleet, memory, second, *three, **late).memory
    assert memory.lanes["short"].wanted == 4


def test_replicas_are_not_given_up_before_it_is_known_what_requests_cost():
    fleet = worlds.one_lane(2, bounds=(1, 4))
    measured = ReplicaThroughput(rps=1.0, prompt_share=0.5, output_share=0.5)
    lanes = tuple(
        replace(lane, throughput=measured, prompt_tokens_mean=1.0, output_tokens_mean=1.0) for lane in fleet.plan.lanes
    )
    fleet = replace(fleet, plan=replace(fleet.plan, lanes=lanes))
    decision = step(fleet, PLANNED, 3600, *TWO, rps=0.8, samples_count=10)
    for second in range(10, 300, 10):
        decision = step(fleet, decision.memory, 3600 + second, *TWO, rps=0.8, samples_count=10)
        assert decision.memory.lanes["short"].wanted == 2
    assert "0.8 rps offered needs 1 of 2, maybe 2: too few requests have finished" in reason_of(decision, "short")
    # That it might have been more is no burst to keep anything for.
    assert step(fleet, decision.memory, 3900, *TWO, rps=0.8).memory.lanes["short"].wanted == 1


def test_a_lane_at_its_minimum_counts_no_more_replicas_of_fewer():
    fleet = worlds.one_lane(2)
    spec = fleet.profile.lanes[0]
    bounds = replace(spec, replicas=replace(spec.replicas, min=2))
    fleet = replace(fleet, profile=replace(fleet.profile, lanes=(bounds, *fleet.profile.lanes[1:])))
    assert reason_of(step(fleet, PLANNED, 3600, *TWO, rps=2.0), "short").startswith("2 ready of 2, the lane's minimum")
    three = (*TWO, observed("r3"))
    more = reason_of(step(fleet, PLANNED, 3600, *three, rps=2.0), "short")
    assert more.startswith("3 ready, 2 wanted, the lane's minimum")

"""The degradation ladder: visible steps, held by the clock, left one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from fleetctl.core.overload import effective_step
from fleetctl.model.decision import LaneMemory, LaunchReplica, Memory, SetStep
from fleetctl.model.desired import Overrides
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import ControlSpec, Mode, ReplicaBounds
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import LaneSlo, TargetCount, Validity
from fleetctl.model.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation
from tests.reconcile import worlds
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, one_lane, reason_of, snapshot, traffic

STEP = LadderStep
STATE = ReplicaState
MISSING = ReasonCode.REPLICAS_MISSING
SHORT = Subject.lane("short")
TWO = (observed("r1"), observed("r2"))


def passed(
    fleet: Desired, figures_at: Iterable[tuple[int, dict[str, Any]]], *, memory: Memory | None = None
) -> tuple[list[tuple[int, LadderStep]], Memory]:
    """Return (second, step) for every SetStep of `short` while the figures of each second come in."""
    memory = memory or Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})
    steps = []
    for now_s, figures in figures_at:
        gateway = snapshot(traffic("short", **figures), now_s=now_s)
        decision = decide(fleet, observation(*TWO, gateway=gateway, now_s=now_s), memory)
        memory = decision.memory
        steps += [(now_s - 3600, a.step) for a in of_kind(decision, SetStep)]
    return steps, memory


def test_over_twice_the_slo_it_goes_up_and_breaks_at_thirty_seconds():
    fleet = worlds.one_lane(2, bounds=(1, 2))
    steps, _ = passed(fleet, [(3600 + s, {"ttft_s": 0.7}) for s in range(40)])
    assert [step for _, step in steps] == [STEP.CAP_TOKENS, STEP.CAP_CONTEXT, STEP.SHED, STEP.BREAKER]
    assert steps[0][0] == 10
    assert steps[-1][0] == 30


def test_a_lane_with_somewhere_to_spill_spills_before_it_sheds():
    spec = worlds.lane_spec(spill_to=("long",), replicas=ReplicaBounds(min=1, max=2))
    steps, _ = passed(worlds.desired(spec), [(3600 + s, {"ttft_s": 0.7}) for s in range(31)])
    assert [step for _, step in steps] == [
        STEP.CAP_TOKENS, STEP.CAP_CONTEXT, STEP.SPILL, STEP.SHED, STEP.BREAKER,
    ]  # fmt: skip


def test_merely_over_the_slo_is_scalings_business():
    steps, _ = passed(worlds.one_lane(2, bounds=(1, 2)), [(3600 + s, {"ttft_s": 0.5}) for s in range(0, 100, 5)])
    assert steps == []


def on_step(step: LadderStep, since_s: float = 0.0) -> Memory:
    lane = LaneMemory(wanted=2, planned=2, requested=2, step=step, stepped_at=at(3600 + since_s))
    return Memory(lanes={"short": lane})


def test_it_comes_down_one_step_for_every_ten_calm_seconds_while_requests_are_refused():
    figures = {"ttft_s": 0.1, "shed": {"shed": 3}}
    steps, _ = passed(worlds.one_lane(2), [(3600 + s, figures) for s in range(60)], memory=on_step(STEP.BREAKER))
    assert steps == [(10, STEP.SHED), (20, STEP.CAP_CONTEXT), (30, STEP.CAP_TOKENS), (40, STEP.NORMAL)]


def test_all_steps_are_let_go_at_once_where_nothing_is_refused_any_more():
    steps, _ = passed(
        worlds.one_lane(2), [(3600 + s, {"ttft_s": 0.1}) for s in range(60)], memory=on_step(STEP.BREAKER)
    )
    assert steps == [(10, STEP.NORMAL)]


def breaker_steps(probes_over: int) -> list[tuple[int, LadderStep]]:
    """Return the steps of a lane whose breaker has just opened: its minute is late, and of 9 probes so many are."""
    fleet, memory, steps = worlds.one_lane(2), on_step(STEP.BREAKER), []
    target = fleet.profile.lanes[0].slo.targets[0]
    for second in range(30):
        late = traffic("short", ttft_s=0.9, shed={"breaker": 40})
        probes = TargetCount(target=target, samples=9, over=probes_over, measured_s=0.9 if probes_over else 0.1)
        lately = msgspec.structs.replace(late.windows[0], ttft=worlds.quantiles(0.9, 9), targets=(probes,))
        gateway = snapshot(replace(late, windows=(lately, *late.windows[1:])), now_s=3600 + second)
        decision = decide(fleet, observation(*TWO, gateway=gateway, now_s=3600 + second), memory)
        memory = decision.memory
        steps += [(second, a.step) for a in of_kind(decision, SetStep)]
    return steps


def test_an_open_breaker_is_judged_by_its_probes_and_not_by_the_minute_before_it():
    assert breaker_steps(0)[0] == (10, STEP.SHED)
    assert breaker_steps(9) == []


def test_answers_that_are_late_by_their_wait_for_a_replica_to_start_open_no_breaker():
    held = {"wait_s": 100.0, "ttft_s": 100.2}
    steps, _ = passed(worlds.one_lane(2, bounds=(1, 2)), [(3600 + s, held) for s in range(60)])
    assert max(step for _, step in steps) is STEP.SHED


def test_waits_alone_never_open_the_breaker():
    spec = worlds.lane_spec(replicas=ReplicaBounds(min=1, max=2), max_wait_s=10.0)
    steps, _ = passed(worlds.desired(spec), [(3600 + s, {"wait_s": 3.0, "ttft_s": 0.2}) for s in range(90)])
    assert max(step for _, step in steps) is STEP.SHED


def test_between_one_and_two_times_the_slo_the_step_is_held():
    memory = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2, step=STEP.SHED)})
    steps, after = passed(worlds.one_lane(2), [(3600 + s, {"ttft_s": 0.45}) for s in range(0, 60, 5)], memory=memory)
    assert steps == []
    assert after.lanes["short"].calm_since is None


def test_stale_figures_hold_the_step():
    memory = Memory(
        lanes={"short": LaneMemory(wanted=2, planned=2, requested=2, step=STEP.SHED, overloaded_since=at(0))}
    )
    gateway = snapshot(traffic("short", ttft_s=9.0))
    decision = decide(worlds.one_lane(2), observation(*TWO, gateway=gateway, gateway_validity=Validity.STALE), memory)
    assert of_kind(decision, SetStep) == []


def batch_fleet(*, lends: bool = True) -> Desired:
    batch = replace(worlds.lane_spec("long"), name="batch", interruptible=True, lends=lends, max_wait_s=1000.0)
    batch = replace(batch, slo=LaneSlo(targets=()))
    short = worlds.lane_spec("short", lends=lends)
    return worlds.desired(short, batch, counts={"short": (1, 0), "batch": (1, 0)})


def batch_steps(fleet: Desired, ratios: Iterable[float]) -> tuple[list[tuple[int, LadderStep]], Memory]:
    """Feed queue waits of `short` (its limit is 240 ms), one a second; return what `batch` was set to."""
    memory = Memory()
    steps = []
    for second, ratio in enumerate(ratios):
        gateway = snapshot(traffic("short", wait_s=0.24 * ratio), traffic("batch", in_flight=1), now_s=3600 + second)
        seen = observation(observed("r1"), observed("r31", record_lane="batch"), gateway=gateway, now_s=3600 + second)
        decision = decide(fleet, seen, memory)
        memory = decision.memory
        steps += [(second, a.step) for a in of_kind(decision, SetStep) if a.lane == "batch"]
    return steps, memory


def test_batch_is_paused_at_once_when_interactive_lanes_are_pressed():
    steps, _ = batch_steps(batch_fleet(), [0.5, 0.7, 0.81])
    assert steps == [(2, STEP.PAUSE_BATCH)]


def test_batch_is_not_paused_for_a_ttft_near_its_limit_which_is_where_the_plan_puts_it():
    for ttft_s in (0.29, 0.31):
        gateway = snapshot(traffic("short", ttft_s=ttft_s), traffic("batch", in_flight=1))
        seen = observation(observed("r1"), observed("r31", record_lane="batch"), gateway=gateway)
        assert of_kind(decide(batch_fleet(), seen), SetStep) == []


@pytest.mark.parametrize(
    "figures", [{"wait_s": 0.3}, {"shed": {"predicted-wait": 1}}, {"queued": 1, "oldest_wait_s": 0.2}]
)
def test_batch_is_paused_by_waits_and_refusals(figures: dict[str, Any]) -> None:
    gateway = snapshot(traffic("short", **figures), traffic("batch", in_flight=1))
    seen = observation(observed("r1"), observed("r31", record_lane="batch"), gateway=gateway)
    (pause,) = of_kind(decide(batch_fleet(), seen), SetStep)
    assert (pause.lane, pause.step, pause.code) == ("batch", STEP.PAUSE_BATCH, ReasonCode.BATCH_PRESSURE)
    assert pause.reason.startswith("paused for short: ")


def test_batch_is_not_paused_where_that_would_give_nobody_a_replica_and_says_so():
    fleet = batch_fleet(lends=False)
    gateway = snapshot(traffic("short", shed={"predicted-wait": 5}), traffic("batch", in_flight=1))
    decision = decide(fleet, observation(observed("r1"), observed("r31", record_lane="batch"), gateway=gateway))
    assert [a for a in of_kind(decision, SetStep) if a.lane == "batch"] == []
    found = [r.message for r in decision.reasons[Subject.lane("batch")] if r.code is ReasonCode.BATCH_PRESSURE]
    assert found == ["not paused: short may use none of its replicas (50% of requests refused)"]


@pytest.mark.parametrize(("requests", "is_paused"), [({}, False), ({"in_flight": 1}, True), ({"queued": 1}, True)])
def test_a_batch_lane_without_requests_is_not_paused_for_it_holds_nobodys_replica(
    requests: dict[str, Any], is_paused: bool
) -> None:
    gateway = snapshot(traffic("short", shed={"predicted-wait": 5}), traffic("batch", **requests))
    decision = decide(batch_fleet(), observation(observed("r1"), observed("r31", record_lane="batch"), gateway=gateway))
    assert bool([a for a in of_kind(decision, SetStep) if a.lane == "batch"]) is is_paused
    assert any("it has no request" in r.message for r in decision.reasons[Subject.lane("batch")]) is not is_paused


def test_batch_is_paused_no_longer_than_its_own_promise_allows():
    fleet, steps, memory = batch_fleet(), [], Memory()
    for second, own_wait_s in enumerate((0.0, 350.0, 410.0, 300.0, 190.0)):
        batch = traffic("batch", queued=5, oldest_wait_s=own_wait_s)
        gateway = snapshot(traffic("short", wait_s=0.9), batch, now_s=3600 + second)
        seen = observation(observed("r1"), observed("r31", record_lane="batch"), gateway=gateway, now_s=3600 + second)
        decision = decide(fleet, seen, memory)
        memory = decision.memory
        steps += [(second, a.step, a.reason) for a in of_kind(decision, SetStep) if a.lane == "batch"]
    # Its limit is 800 s, four fifths of its longest wait.
    assert [(second, step) for second, step, _ in steps] == [
        (0, STEP.PAUSE_BATCH), (2, STEP.NORMAL), (4, STEP.PAUSE_BATCH)
    ]  # fmt: skip
    assert steps[1][2] == "resumed for its own promise: oldest wait 6m50s <= 13m20s"


def test_batch_resumes_only_well_below_the_line_that_paused_it_and_after_a_while():
    steps, _ = batch_steps(batch_fleet(), [0.9, 0.7, 0.6] + [0.4] * 12)
    assert steps == [(0, STEP.PAUSE_BATCH), (13, STEP.NORMAL)]


def test_batch_that_has_to_be_paused_again_and_again_stays_paused_longer_each_time():
    # Pressed for three seconds of every forty.
    steps, memory = batch_steps(batch_fleet(), [0.9 if second % 40 < 3 else 0.1 for second in range(600)])
    begun = [second for second, step in steps if step is STEP.PAUSE_BATCH]
    assert begun == [0, 40, 80]
    assert memory.lanes["batch"].pauses == 3
    steps, _ = batch_steps(batch_fleet(), [0.9 if second % 700 < 3 else 0.1 for second in range(1500)])
    assert [second for second, _ in steps] == [0, 13, 700, 713, 1400, 1413]


def test_a_paused_lane_is_not_grown_for_waiting():
    fleet = batch_fleet()
    memory = Memory(
        lanes={"batch": LaneMemory(wanted=1, planned=1, requested=1, step=STEP.PAUSE_BATCH, up_since=at(0))}
    )
    gateway = snapshot(
        traffic("short", wait_s=0.23), traffic("batch", queued=9, oldest_wait_s=30.0, rps=0.1), now_s=3600
    )
    decision = decide(fleet, observation(observed("r1"), observed("r31", record_lane="batch"), gateway=gateway), memory)
    assert decision.memory.lanes["batch"].wanted == 1


def test_a_pinned_step_is_held_against_all_figures():
    fleet = worlds.one_lane(2, overrides=Overrides(step={"short": STEP.SHED}))
    steps, memory = passed(fleet, [(3600 + s, {"ttft_s": 0.1}) for s in range(30)])
    assert steps == [(0, STEP.SHED)]
    assert effective_step(fleet, "short", memory.lanes["short"]) is STEP.SHED


def test_off_means_off_at_once_and_is_said():
    pinned = one_lane(overrides=Overrides(step={"short": LadderStep.BREAKER}))
    figures = observation(*TWO, gateway=snapshot(traffic("short", rps=1, shed={"breaker": 9}), now_s=3600))
    held = decide(pinned, figures)
    assert held.memory.lanes["short"].step is LadderStep.BREAKER
    free = decide(one_lane(), figures, held.memory, now_s=3601)
    assert free.memory.lanes["short"].step is LadderStep.NORMAL
    step_set = of_kind(free, SetStep)[0]
    assert (step_set.step, step_set.code) == (LadderStep.NORMAL, ReasonCode.OPERATOR)
    assert step_set.reason == "let go by an operator"


def test_off_leaves_the_step_that_the_lanes_own_figures_demand():
    pinned = one_lane(overrides=Overrides(step={"short": LadderStep.BREAKER}))
    slow = {"rps": 1.0, "ttft_s": 0.9}
    memory = Memory()
    for now_s in (3600, 3615):
        memory = decide(pinned, at_rate(now_s, **slow), memory).memory
    step = decide(one_lane(), at_rate(3616, **slow), memory).memory.lanes["short"].step
    assert LadderStep.NORMAL < step < LadderStep.BREAKER


def test_what_a_pinned_step_refuses_buys_no_replica_and_gives_none_up():
    pinned = one_lane(overrides=Overrides(step={"short": LadderStep.SHED}))
    memory = Memory(lanes={"short": LaneMemory(wanted=2, planned=2)})
    for now_s in range(3600, 5600, 20):
        memory = decide(pinned, at_rate(now_s, rps=6.0, shed={"shed": 360}), memory).memory
        assert memory.lanes["short"].wanted == 2
    after = decide(one_lane(), at_rate(5601, rps=2.0, shed={"shed": 60}), memory)
    assert after.memory.lanes["short"].wanted == 2
    assert of_kind(after, LaunchReplica) == []


def test_what_the_controllers_own_step_refuses_is_demand():
    memory = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, step=LadderStep.SHED)})
    for now_s in (3600, 3611):
        memory = decide(one_lane(), at_rate(now_s, rps=2.0, shed={"shed": 5}), memory).memory
    assert memory.lanes["short"].wanted == 3


def at_rate(now_s: float, **figures: Any) -> Observation:
    return observation(*TWO, gateway=snapshot(traffic("short", **figures), now_s=now_s), now_s=now_s)


def test_in_shadow_mode_the_ladder_is_thought_and_not_set():
    fleet = worlds.one_lane(2, bounds=(1, 2), mode=Mode.SHADOW)
    memory = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2, overloaded_since=at(0))})
    gateway = snapshot(traffic("short", ttft_s=0.9))
    decision = decide(fleet, observation(*TWO, gateway=gateway), memory)
    assert [a.shadow for a in of_kind(decision, SetStep)] == [True]
    assert effective_step(fleet, "short", decision.memory.lanes["short"]) is STEP.NORMAL


def outage(
    fleet: Desired,
    seconds: Iterable[int],
    *,
    ready_at: int,
    figures: dict[str, Any],
    back: dict[str, Any] | None = None,
) -> tuple[list[tuple[int, LadderStep]], list[str]]:
    """Return the steps taken, and why each second, of a lane of two of which r1 dies at 0 and is back at `ready_at`."""
    memory, steps, reasons = Memory(lanes={"short": settled()}), [], []
    for second in seconds:
        now_s = 3600 + second
        gone = second < ready_at
        replicas = (observed("r1", STATE.BOOTING, record_ready_at=at(0)),) if gone else (observed("r1"),)
        gateway = snapshot(traffic("short", **(figures if gone else back or figures)), now_s=now_s)
        decision = decide(fleet, observation(*replicas, *TWO[1:], gateway=gateway, now_s=now_s), memory)
        memory = decision.memory
        steps += [(second, a.step) for a in of_kind(decision, SetStep)]
        reasons.append(next((r.message for r in decision.reasons[SHORT] if r.code is MISSING), ""))
    return steps, reasons


def settled(**changes: Any) -> LaneMemory:
    return replace(LaneMemory(wanted=2, planned=2, requested=2, had_ready=2), **changes)


LATE: dict[str, Any] = {"ttft_s": 0.9, "queued": 9, "oldest_wait_s": 5.0, "rps": 1.5}


def test_a_lane_that_has_lost_a_replica_takes_no_step_and_says_why():
    steps, reasons = outage(worlds.one_lane(2, bounds=(2, 2)), range(60), ready_at=60, figures=LATE)
    assert steps == []
    assert reasons[30].startswith("1 of 2 replicas serve, for 30s: answered by their replacement")


def test_figures_of_the_outage_are_not_held_against_the_lane_once_it_is_whole_again():
    fleet = worlds.one_lane(2, bounds=(2, 2))
    # Its minute still holds what waited; the queue has gone.
    after = {"ttft_s": 0.9, "samples_count": 200, "rps": 1.5}
    steps, reasons = outage(fleet, range(30), ready_at=20, figures=LATE, back=after)
    assert steps == []
    assert reasons[20] == ""


def test_a_step_that_was_taken_ends_when_the_replicas_turn_out_to_be_missing():
    memory = Memory(lanes={"short": settled(step=STEP.SHED, overloaded_since=at(3580))})
    gateway = snapshot(traffic("short", **LATE))
    seen = observation(observed("r1", STATE.BOOTING, record_ready_at=at(0)), *TWO[1:], gateway=gateway)
    decision = decide(worlds.one_lane(2, bounds=(2, 2)), seen, memory)
    assert [(a.step, a.code) for a in of_kind(decision, SetStep)] == [(STEP.NORMAL, MISSING)]


def test_a_lane_that_would_be_overloaded_with_all_its_replicas_takes_its_steps():
    steps, _ = outage(worlds.one_lane(2, bounds=(2, 2)), range(31), ready_at=60, figures={**LATE, "rps": 50.0})
    assert steps[-1][1] is STEP.SHED


def test_replicas_that_were_ordered_and_never_served_are_not_missing():
    memory = Memory(lanes={"short": settled(wanted=4)})
    steps = []
    for second in range(31):
        now_s = 3600 + second
        gateway = snapshot(traffic("short", **LATE), now_s=now_s)
        coming = [observed(f"r{n}", STATE.BOOTING) for n in (3, 4)]
        decision = decide(
            worlds.one_lane(2, bounds=(2, 4)), observation(*TWO, *coming, gateway=gateway, now_s=now_s), memory
        )
        memory = decision.memory
        steps += [a.step for a in of_kind(decision, SetStep)]
    assert steps[-1] is STEP.SHED


def test_what_is_not_replaced_for_long_is_missing_no_more():
    control = ControlSpec(start_timeout_s=30.0)
    fleet = worlds.one_lane(2, bounds=(2, 2), control=control)
    steps, _ = outage(fleet, range(200), ready_at=500, figures=LATE)
    assert steps
    assert steps[0][0] >= 30


def test_batch_is_not_paused_because_another_lanes_replicas_are_gone():
    memory = Memory(lanes={"short": LaneMemory(wanted=1, planned=1, requested=1, had_ready=1)})
    gateway = snapshot(traffic("short", wait_s=9.0, shed={"no-replica": 4}), traffic("batch", in_flight=1))
    replicas = (observed("r1", STATE.BOOTING, record_ready_at=at(0)), observed("r31", record_lane="batch"))
    decision = decide(batch_fleet(), observation(*replicas, gateway=gateway), memory)
    assert of_kind(decision, SetStep) == []


def test_requests_held_for_the_first_replica_are_no_overload_once_it_serves():
    fleet = worlds.one_lane(2, bounds=(2, 8))
    memory, steps, reasons = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)}), [], []
    for second in range(90):
        now_s = 3600.0 + second
        is_up = second >= 20
        # Who came in the first 20 s was held, and is worked off by 50 s.
        oldest_s = second - max(0.0, second - 20) * 20 / 30
        waits: dict[str, Any] = {"queued": 9, "oldest_wait_s": oldest_s, "ttft_s": 20.0}
        if second >= 50:
            waits = {"ttft_s": 20.0 if second < 60 else 0.1}
        state = STATE.READY if is_up else STATE.BOOTING
        seen = (observed("r1", state), observed("r2", state))
        gateway = snapshot(traffic("short", rps=1.5, **waits), now_s=now_s)
        decision = decide(fleet, observation(*seen, gateway=gateway, now_s=now_s), memory)
        memory = decision.memory
        steps += [(second, a.step) for a in of_kind(decision, SetStep)]
        reasons.append(reason_of(decision, "short"))
        assert memory.lanes["short"].wanted == 2, (second, reasons[-1])
    assert steps == []
    assert "requests still wait that came before its replicas were ready" in reasons[35]

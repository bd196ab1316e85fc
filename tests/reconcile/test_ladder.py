"""The degradation ladder: visible steps, held by the clock, left one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleetctl.core.overload import effective_step
from fleetctl.model.decision import LaneMemory, Memory, SetStep
from fleetctl.model.desired import Overrides
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import Mode, ReplicaBounds
from fleetctl.model.slo import Validity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.desired import Desired
from tests.reconcile import worlds
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, snapshot, traffic

STEP = LadderStep
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


def test_it_comes_down_one_step_for_every_ten_calm_seconds():
    memory = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2, step=STEP.BREAKER)})
    steps, _ = passed(worlds.one_lane(2), [(3600 + s, {"ttft_s": 0.1}) for s in range(60)], memory=memory)
    assert steps == [(10, STEP.SHED), (20, STEP.CAP_CONTEXT), (30, STEP.CAP_TOKENS), (40, STEP.NORMAL)]


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


def batch_fleet() -> Desired:
    batch = replace(worlds.lane_spec("long"), name="batch", interruptible=True)
    return worlds.desired(worlds.lane_spec("short"), batch, counts={"short": (1, 0), "batch": (1, 0)})


def batch_steps(fleet: Desired, ratios: Iterable[float]) -> tuple[list[tuple[int, LadderStep]], Memory]:
    """Feed queue waits of `short` (its limit is 240 ms), one a second; return what `batch` was set to."""
    memory = Memory()
    steps = []
    for second, ratio in enumerate(ratios):
        gateway = snapshot(traffic("short", wait_s=0.24 * ratio), traffic("batch"), now_s=3600 + second)
        seen = observation(observed("r1"), observed("r31", record_lane="batch"), gateway=gateway, now_s=3600 + second)
        decision = decide(fleet, seen, memory)
        memory = decision.memory
        steps += [(second, a.step) for a in of_kind(decision, SetStep) if a.lane == "batch"]
    return steps, memory


def test_batch_is_paused_at_once_when_interactive_lanes_are_pressed():
    steps, _ = batch_steps(batch_fleet(), [0.5, 0.7, 0.81])
    assert steps == [(2, STEP.PAUSE_BATCH)]


def test_batch_resumes_only_well_below_the_line_that_paused_it_and_after_a_while():
    steps, _ = batch_steps(batch_fleet(), [0.9, 0.7, 0.6] + [0.4] * 12)
    assert steps == [(0, STEP.PAUSE_BATCH), (13, STEP.NORMAL)]


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


def test_in_shadow_mode_the_ladder_is_thought_and_not_set():
    fleet = worlds.one_lane(2, bounds=(1, 2), mode=Mode.SHADOW)
    memory = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2, overloaded_since=at(0))})
    gateway = snapshot(traffic("short", ttft_s=0.9))
    decision = decide(fleet, observation(*TWO, gateway=gateway), memory)
    assert [a.shadow for a in of_kind(decision, SetStep)] == [True]
    assert effective_step(fleet, "short", decision.memory.lanes["short"]) is STEP.NORMAL

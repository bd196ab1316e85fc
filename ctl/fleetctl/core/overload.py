"""Moves a lane up and down the degradation ladder, one step at a time, on clock time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.changed import changed
from fleetctl.core.pressure import Ratio
from fleetctl.model.decision import LaneMemory
from fleetctl.model.ladder import LadderStep, StepEffect, entries_up_to
from fleetctl.model.profile import Mode
from fleetctl.model.reason import ReasonCode
from fleetctl.model.slo import Validity
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.core.lane_view import LaneView
    from fleetctl.model.desired import Desired
    from fleetctl.model.profile import LaneSpec

# Published overload rules: cut context when P99 is over 200 % of its SLO for 10 s; break at 2x for 30 s.
OVERLOAD_RATIO = 2.0
_FIRST_STEP_AFTER_S = 10.0
# Of its own wait limit: a batch lane is not paused beyond the one, nor again before its queue has come down to the other.
_RESUME_ABOVE = 0.5
_PAUSE_BELOW = 0.25
_CALM_AFTER_S = 10.0  # inside the SLO for this long: one step down
# A lane that is paused again so soon after it went on was let go too early: the next calm has to last twice as long. At
# worst it is paused and let go a dozen times an hour.
_PAUSED_AGAIN_S = 600.0
_PAUSES_MAX = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDecision:
    """Where a lane stands after this decision; `changed` says whether it moved, `pinned` that a person holds it."""

    memory: LaneMemory
    reason: str
    changed: bool
    pinned: bool = False
    code: ReasonCode = ReasonCode.LADDER_STEP


def effective_step(desired: Desired, lane: str, memory: LaneMemory) -> LadderStep:
    """Return the step that is in force: a pinned one, else the controller's own, which in shadow mode is none."""
    pinned = desired.overrides.step.get(lane)
    if pinned is not None:
        return pinned
    return memory.step if desired.profile.control.mode is Mode.ACTIVE else LadderStep.NORMAL


def decide_step(view: LaneView) -> StepDecision:
    """Return the lane's ladder step: pinned by an operator, paused for the interactive lanes, or set by its own overload."""
    if view.pinned is not None:
        return _to(view, _held_by_operator(view), view.pinned, "pinned by an operator", pinned=True)
    if view.memory.is_pinned:
        return _let_go(view)
    if view.spec.interruptible:
        return _pause_or_resume(view)
    if view.pressure.validity is not Validity.OK:
        return _stay(view, view.memory)
    if view.is_absence:
        return _without_replicas(view)
    return _decide_interactive(view)


def _held_by_operator(view: LaneView) -> LaneMemory:
    """Return the memory of a pinned lane; since when it is overloaded is kept, for when the operator lets go."""
    latency = view.pressure.latency
    is_overloaded = latency is not None and latency.ratio > OVERLOAD_RATIO
    since = (view.memory.overloaded_since or view.now) if is_overloaded else None
    return replace(view.memory, is_pinned=True, released_at=None, overloaded_since=since, calm_since=None)


def _let_go(view: LaneView) -> StepDecision:
    """Return the step that the lane's own figures demand now, which mostly is none: not the pinned one step by step."""
    memory = replace(view.memory, is_pinned=False, released_at=view.now, step=LadderStep.NORMAL)
    own = decide_step(replace(view, memory=memory))
    reason = f"let go by an operator{f'; {own.reason}' if own.reason else ''}"
    return _to(view, replace(own.memory, step=view.memory.step), own.memory.step, reason, pinned=True)


def _without_replicas(view: LaneView) -> StepDecision:
    """Return the lane to its normal step: nothing is overloaded, so nothing that others asked for is to be cut."""
    memory = replace(view.memory, overloaded_since=None, calm_since=None)
    if memory.lost_since is None:
        reason = "requests still wait that came before its replicas were ready: a boot is answered by no step"
        return replace(_to(view, memory, LadderStep.NORMAL, reason), code=ReasonCode.REPLICAS_MISSING)
    lost_s = (view.now - memory.lost_since).total_seconds()
    reason = (
        f"{view.counts.ready} of {max(1, memory.had_ready)} replicas serve, for {format_duration(lost_s)}: "
        "answered by their replacement, the queue and lawful spill, not by the ladder"
    )
    return replace(_to(view, memory, LadderStep.NORMAL, reason), code=ReasonCode.REPLICAS_MISSING)


def _pause_or_resume(view: LaneView) -> StepDecision:
    if view.batch_pressure.level is None:
        return _stay(view, view.memory)
    if view.memory.step is LadderStep.NORMAL:
        return _pause(view, view.batch_pressure.level)
    return _resume(view, view.batch_pressure.level)


def _pause(view: LaneView, level: float) -> StepDecision:
    """Pause a lane that runs where that helps another, unless its own requests have waited for long."""
    found, above = view.batch_pressure, view.control.pause_batch_above
    if level <= above or _own_wait(view).ratio >= _PAUSE_BELOW:
        return _stay(view, view.memory, found.not_helped)
    if not (view.pressure.in_flight or view.pressure.queued):
        # A lane without requests holds no replica from anybody.
        return _stay(view, view.memory, f"not paused for {found.cause}: it has no request")
    pauses = _pauses(view)
    again = f"; the {pauses}. pause in a row, until {format_duration(_calm_s(pauses))} of calm" if pauses > 1 else ""
    reason = f"paused for {found.cause}, over {above:.0%} of its limit{again}"
    return _to(view, replace(view.memory, calm_since=None, pauses=pauses), LadderStep.PAUSE_BATCH, reason)


def _pauses(view: LaneView) -> int:
    """Return which pause in a row one that begins now is."""
    before = view.memory
    went_on_s = math.inf if before.stepped_at is None else (view.now - before.stepped_at).total_seconds()
    return min(_PAUSES_MAX, before.pauses + 1) if went_on_s < _PAUSED_AGAIN_S else 1


def _calm_s(pauses: int) -> float:
    return _CALM_AFTER_S * 2.0 ** (max(1, pauses) - 1)


def _resume(view: LaneView, level: float) -> StepDecision:
    """Let a paused lane go on once nobody needs the pause any more, or its own promise no longer bears it."""
    memory, own, below = view.memory, _own_wait(view), view.control.resume_batch_below
    if own.ratio > _RESUME_ABOVE:
        reason = f"resumed for its own promise: {own.message}"
        return _to(view, replace(memory, calm_since=None), LadderStep.NORMAL, reason)
    if level >= below:
        still = f"paused for {view.batch_pressure.cause}; resumes below {below:g} of the limit"
        return _stay(view, replace(memory, calm_since=None), still)
    calm_since = memory.calm_since or view.now
    calm_s = (view.now - calm_since).total_seconds()
    if calm_s < _calm_s(memory.pauses):
        return _stay(view, replace(memory, calm_since=calm_since), "paused; pressure falling")
    reason = f"resumed: pressure {level:.2f} < {below:g} for {format_duration(calm_s)}"
    return _to(view, replace(memory, calm_since=None), LadderStep.NORMAL, reason)


def _own_wait(view: LaneView) -> Ratio:
    return view.pressure.waiting or Ratio(ratio=0.0, message="")


def _decide_interactive(view: LaneView) -> StepDecision:
    latency, memory = view.pressure.latency, view.memory
    if latency is not None and latency.ratio > OVERLOAD_RATIO:
        overloaded = replace(memory, overloaded_since=memory.overloaded_since or view.now, calm_since=None)
        return _escalate(view, overloaded, latency.message)
    memory = changed(memory, overloaded_since=None)
    if latency is not None and latency.ratio >= 1.0:
        return _stay(view, replace(memory, calm_since=None), _held(memory, latency.message))
    return _relax(view, memory, latency.message if latency else "no samples")


def _escalate(view: LaneView, memory: LaneMemory, message: str) -> StepDecision:
    overloaded_s = (view.now - (memory.overloaded_since or view.now)).total_seconds()
    steps = _steps(view.spec)
    due = _due(steps, overloaded_s, view.control.breaker_after_s)
    if due is LadderStep.BREAKER and not _engines_are_late(view):
        # Who waits is bounded by admission; only replicas that answer late although it is are spared by refusing all.
        due = steps[-2]
    step = max(memory.step, due)
    reason = f"{message}, over twice the SLO for {format_duration(overloaded_s)}"
    if step is memory.step:
        return _stay(view, memory, _held(memory, reason))
    return _to(view, memory, step, reason)


def _engines_are_late(view: LaneView) -> bool:
    """Whether first tokens come far too late, and not because requests were held for a replica to start."""
    ttft, waiting = view.pressure.ttft, view.pressure.waiting
    is_late = ttft is not None and ttft.ratio > OVERLOAD_RATIO
    return is_late and (waiting is None or waiting.ratio <= 1.0)


def _due(steps: tuple[LadderStep, ...], overloaded_s: float, breaker_after_s: float) -> LadderStep:
    """Return the step due after `overloaded_s` of overload: the breaker at its own time, the milder ones evenly before it."""
    if overloaded_s >= breaker_after_s:
        return steps[-1]
    first_s = min(_FIRST_STEP_AFTER_S, breaker_after_s / 2)
    if overloaded_s < first_s:
        return steps[0]
    passed = (overloaded_s - first_s) / (breaker_after_s - first_s) * (len(steps) - 2)
    return steps[1 + int(passed)]


def _relax(view: LaneView, memory: LaneMemory, message: str) -> StepDecision:
    """Return the step below once the figures since this one show no overload; the normal one where nothing is refused."""
    if memory.step is LadderStep.NORMAL:
        return _stay(view, changed(memory, calm_since=None))
    calm_since = memory.calm_since or view.now
    calm_s = (view.now - calm_since).total_seconds()
    stepped_s = calm_s if memory.stepped_at is None else (view.now - memory.stepped_at).total_seconds()
    has_seen = stepped_s >= _CALM_AFTER_S and view.pressure.ttft is not None
    if calm_s < _CALM_AFTER_S and not has_seen:
        return _stay(view, replace(memory, calm_since=calm_since), _held(memory, message))
    below = [step for step in _steps(view.spec) if step < memory.step]
    # Calm is counted afresh for every step, so that load returns in portions; where none is refused, none is to return.
    step, what = (below[-1], "one step down") if view.pressure.unmet else (below[0], "nothing is refused any more")
    reason = f"{message}, {format_duration(max(stepped_s, calm_s))} after the last step: {what}"
    return _to(view, replace(memory, calm_since=view.now), step, reason)


def _steps(spec: LaneSpec) -> tuple[LadderStep, ...]:
    """Return the steps that change something for this lane."""
    entries = entries_up_to(LadderStep.BREAKER, interruptible=spec.interruptible)
    return tuple(entry.step for entry in entries if entry.effect is not StepEffect.SPILLS or spec.spill_to)


def _held(memory: LaneMemory, message: str) -> str:
    return f"step {memory.step} held: {message}" if memory.step is not LadderStep.NORMAL else ""


def _to(view: LaneView, memory: LaneMemory, step: LadderStep, reason: str, *, pinned: bool = False) -> StepDecision:
    if step is memory.step:
        return replace(_stay(view, memory, reason), pinned=pinned)
    moved = replace(memory, step=step, stepped_at=view.now)
    return StepDecision(memory=moved, reason=reason, changed=True, pinned=pinned, code=_code(view))


def _stay(view: LaneView, memory: LaneMemory, reason: str = "") -> StepDecision:
    return StepDecision(memory=memory, reason=reason, changed=False, code=_code(view))


def _code(view: LaneView) -> ReasonCode:
    return ReasonCode.BATCH_PRESSURE if view.spec.interruptible else ReasonCode.LADDER_STEP

"""Says how many replicas a lane should have: offered load, queue wait and TTFT, held by clock time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from fleetctl.core.demand import replicas_needed
from fleetctl.model.decision import LaneMemory
from fleetctl.model.ladder import LadderStep
from fleetctl.model.reason import ReasonCode
from fleetctl.model.slo import Validity
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.core.lane_view import LaneView
    from fleetctl.core.pressure import Ratio

# After one replica less, the projected pressure must stay under this: the N-1 rule with room for noise.
_SHRINK_BELOW = 0.8
# Published: scale up at once when the 5-minute TTFT P99 is over target and the budget burns faster than this.
_BURN_AT_ONCE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """How many replicas are wanted, and why."""

    wanted: int
    memory: LaneMemory
    code: ReasonCode
    reason: str  # the code in words, with its figures


class Scaling(Protocol):
    """Computes how many replicas a lane should have, inside its bounds."""

    def __call__(self, view: LaneView, /) -> Target:
        """Return the wanted replicas, the lane's memory, and why."""
        ...


def target(view: LaneView) -> Target:
    """Return the wanted replicas, always inside the lane's bounds."""
    if view.override is not None:
        return _overridden(view, view.override)
    memory = view.memory
    if memory.planned != view.plan.replicas:
        wanted = view.bounded(view.plan.replicas)
        fresh = replace(memory, wanted=wanted, planned=view.plan.replicas, up_since=None, down_since=None)
        return Target(wanted=wanted, memory=fresh, code=ReasonCode.PLANNED, reason=f"{wanted} by the plan")
    memory = replace(memory, wanted=view.bounded(memory.wanted))
    if view.pressure.validity is not Validity.OK:
        still = replace(memory, up_since=None, down_since=None)
        return Target(
            wanted=memory.wanted,
            memory=still,
            code=ReasonCode.SIGNALS_UNFIT,
            reason=_held(view.pressure.validity),
        )
    return _grow(view, memory) or _shrink(view, replace(memory, up_since=None))


def _held(validity: Validity) -> str:
    if validity is Validity.NONE:
        return "held: the gateway has given no figures yet"
    return f"held: gateway figures are {validity}"


def _overridden(view: LaneView, override: int) -> Target:
    wanted = view.bounded(override)
    bounds = view.spec.replicas
    held = "" if wanted == override else f", held to the lane's bounds {bounds.min}-{bounds.max}"
    # Forgetting the plan's count makes the plan count afresh once the override ends.
    quiet = replace(view.memory, wanted=wanted, planned=-1, up_since=None, down_since=None)
    return Target(wanted=wanted, memory=quiet, code=ReasonCode.OPERATOR, reason=f"{override} set by an operator{held}")


def _grow(view: LaneView, memory: LaneMemory) -> Target | None:
    """Return the target under pressure, or None when nothing presses."""
    need = view.bounded(replicas_needed(view.plan, view.pressure.offered_rps))
    late = _lateness(view)
    if late is None and need <= memory.wanted:
        return None
    cause = late.message if late else f"{view.pressure.offered_rps:.3g} rps offered needs {need}"
    counts = view.counts
    if need <= memory.wanted and counts.ready < memory.wanted:
        # What was asked for has not helped yet: its effect is judged from when it serves.
        waits = f"{cause}; {counts.ready} of {memory.wanted} ready, {counts.pending} pending"
        return Target(
            wanted=memory.wanted,
            memory=replace(memory, up_since=None, down_since=None),
            code=ReasonCode.LOAD,
            reason=waits,
        )
    memory = replace(memory, up_since=memory.up_since or view.now, down_since=None)
    held_s = (view.now - (memory.up_since or view.now)).total_seconds()
    state = f"{cause} for {format_duration(held_s)}; {counts.ready} ready, {counts.pending} pending"
    burning = _burns(view) if late else ""
    if held_s < view.control.scale_up_after_s and not burning:
        return Target(wanted=memory.wanted, memory=memory, code=ReasonCode.LOAD, reason=state)
    step = 1 if late and counts.ready >= memory.wanted else 0
    return _raised(view, memory, max(need, memory.wanted + step), state + burning)


def _raised(view: LaneView, memory: LaneMemory, wanted: int, state: str) -> Target:
    wanted = view.bounded(wanted)
    if wanted <= memory.wanted:
        bound = view.spec.replicas.max
        return Target(
            wanted=memory.wanted,
            memory=memory,
            code=ReasonCode.LANE_LIMIT,
            reason=f"{state}; at the lane's bound {bound}",
        )
    raised = replace(memory, wanted=wanted, up_since=None)
    return Target(wanted=wanted, memory=raised, code=ReasonCode.LOAD, reason=f"{memory.wanted} -> {wanted}: {state}")


def _lateness(view: LaneView) -> Ratio | None:
    """Return what is over its limit; a paused lane waits on purpose, and another replica would not help."""
    worst = view.pressure.worst
    is_paused = view.spec.interruptible and view.memory.step >= LadderStep.PAUSE_BATCH
    if worst is None or worst.ratio <= 1.0 or is_paused:
        return None
    return worst


def _burns(view: LaneView) -> str:
    burn = view.pressure.burn
    return f", burn {burn:.1f}x" if burn is not None and burn > _BURN_AT_ONCE else ""


def _shrink(view: LaneView, memory: LaneMemory) -> Target:
    """Return one replica less after a long enough calm in which the rest would have kept the SLO."""
    blocked = _cannot_shrink(view, memory)
    if blocked:
        return Target(
            wanted=memory.wanted, memory=replace(memory, down_since=None), code=ReasonCode.LOAD_HELD, reason=blocked
        )
    down_since = memory.down_since or view.now
    calm_s = (view.now - down_since).total_seconds()
    offered_rps = view.pressure.offered_rps_low
    load = f"{offered_rps:.3g} rps offered needs {replicas_needed(view.plan, offered_rps)}"
    if calm_s < view.control.scale_down_after_s:
        left = format_duration(view.control.scale_down_after_s - calm_s)
        kept = replace(memory, down_since=down_since)
        return Target(
            wanted=memory.wanted,
            memory=kept,
            code=ReasonCode.CALM,
            reason=f"{load} of {memory.wanted}; one less in {left}",
        )
    wanted = memory.wanted - 1
    # The calm of the next step is counted afresh.
    lowered = replace(memory, wanted=wanted, down_since=view.now)
    reason = f"{memory.wanted} -> {wanted}: {load} for {format_duration(calm_s)}"
    return Target(wanted=wanted, memory=lowered, code=ReasonCode.CALM, reason=reason)


def _cannot_shrink(view: LaneView, memory: LaneMemory) -> str:
    """Return why the lane keeps its replicas, or an empty string."""
    rest = memory.wanted - 1
    if rest < view.spec.replicas.min:
        return f"{view.counts.ready} ready of {memory.wanted}, the lane's minimum"
    pressure = view.pressure
    demand_rps = max(pressure.offered_rps_low, pressure.offered_rps)
    need = replicas_needed(view.plan, demand_rps)
    if need > rest:
        return f"{demand_rps:.3g} rps offered needs {need} of {memory.wanted}"
    if rest == 0 and (pressure.queued or pressure.in_flight):
        return "requests are waiting or running"
    worst = pressure.worst
    if rest and worst is not None and worst.ratio * memory.wanted / rest > _SHRINK_BELOW:
        return f"{worst.message}; {rest} would be too near the limit"
    return ""

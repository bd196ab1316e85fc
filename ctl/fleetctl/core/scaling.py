"""Says how many replicas a lane should have: its load in work, what is late or refused, what the last bursts needed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from fleetctl.core.bursts import (
    calm_s,
    is_far_over,
    kept_s,
    needed_lately,
    note_lowered,
    note_need,
    note_raised,
    note_wanted,
    without_old_regrets,
)
from fleetctl.core.changed import changed
from fleetctl.core.lane_view import once_a_view
from fleetctl.core.need import (
    has_none,
    load_text,
    may_be_needed_now,
    most_needed,
    needed_by_load,
    needed_now,
    needed_surely,
)
from fleetctl.core.pressure import Ratio
from fleetctl.core.shortfall import note_shortfall, shortfall_need, shortfall_step, shortfall_text
from fleetctl.core.slo.alerts import describe_alert
from fleetctl.core.trend import may_rise, note_arrivals
from fleetctl.model.alert import AlertName
from fleetctl.model.bursts import BurstMemory
from fleetctl.model.decision import LaneMemory
from fleetctl.model.ladder import LadderStep
from fleetctl.model.reason import ReasonCode
from fleetctl.model.slo import Validity
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.core.lane_view import LaneView
from fleetctl.model.bursts import NeedPeak

# After replicas were given up, the projected queue wait and KV cache use must stay under these shares of their limits.
_SHRINK_BELOW = 0.8
# Published: scale up at once when the 5-minute TTFT P99 is over target and the budget burns faster than this.
_BURN_AT_ONCE = 5.0
# A KV cache fuller than this preempts sequences soon: a fifth of it is planned to stay free.
_KV_USAGE_MAX = 0.95
_GROWTH_MAX = 2.0  # times the replicas that serve, for what they refuse
# How many requests are under way at once varies by chance, and stays where it is for about as long as one of them takes: a
# calm that is no longer sees one such number. In simulations of answers of a minute 0 and 3 differed by 1.8 points.
_CALM_REQUESTS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """How many replicas are wanted, and why."""

    wanted: int
    memory: LaneMemory
    code: ReasonCode
    reason: str  # the code in words, with its figures
    need: int | None = None  # what the lane keeps while another lacks some; None: none is moved to it or from it


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
        aim = _planned(view)
        return aim if aim.wanted else _first(view, aim)
    memory = changed(memory, wanted=view.bounded(memory.wanted))
    if view.pressure.validity is not Validity.OK:
        return Target(
            wanted=memory.wanted,
            memory=changed(memory, up_since=None),
            code=ReasonCode.SIGNALS_UNFIT,
            reason=_held(view.pressure.validity),
            need=memory.wanted,
        )
    if view.pressure.latest is not None:
        memory = changed(memory, arrivals=note_arrivals(memory.arrivals, view.pressure.latest, view.now))
    view = changed(view, memory=memory)
    memory = changed(memory, bursts=_noted(view, memory))
    aim = _grow(view, memory) or _shrink(view, changed(memory, up_since=None))
    return aim if view.pinned is not None else changed(aim, need=_kept_need(view, aim))


def _kept_need(view: LaneView, aim: Target) -> int:
    """Return how many of its replicas the lane keeps while another lane lacks some.

    No fewer than the latest rate needs: growth waits before it asks for so many, and what goes meanwhile would be missed.
    """
    return max(_spared_need(view, aim), needed_now(view).replicas)


def _spared_need(view: LaneView, aim: Target) -> int:
    """Return the same, of those that are wanted.

    All while it presses or has just pressed, while its plan has not been tried, and where it lacked before what it gave up;
    else the most that it may need now, and whatever a burst needed lately. A plan is no measured need.
    """
    bursts, calm = aim.memory.bursts, _calm_s(view, aim.memory)
    regretted_s = math.inf if bursts.regretted_at is None else (view.now - bursts.regretted_at).total_seconds()
    if bursts.is_settling or regretted_s < calm or _lateness(view) is not None:
        return aim.wanted
    kept = [most_needed(view), shortfall_need(view)]
    for peak in bursts.peaks:
        age_s = (view.now - peak.at).total_seconds()
        was_just = age_s < view.control.scale_up_after_s
        if was_just or (peak.is_short and peak.is_burst and age_s < kept_s(peak, calm)):
            kept.append(peak.need)
    need = view.bounded(max(kept))
    return aim.wanted if need >= aim.wanted or _cannot_shrink(view, aim.memory, need) else need


def _planned(view: LaneView) -> Target:
    wanted = view.bounded(view.plan.replicas)
    bursts = BurstMemory(is_settling=True, planned_at=view.now)
    fresh = replace(view.memory, wanted=wanted, planned=view.plan.replicas, up_since=None, bursts=bursts)
    return Target(wanted=wanted, memory=fresh, code=ReasonCode.PLANNED, reason=f"{wanted} by the plan", need=wanted)


def _first(view: LaneView, aim: Target) -> Target:
    """Return what those who wait already need where the plan is to have none."""
    if view.pressure.validity is not Validity.OK:
        return aim
    grown = _grow(changed(view, memory=aim.memory), aim.memory)
    return aim if grown is None or not grown.wanted else replace(grown, need=grown.wanted)


def _noted(view: LaneView, memory: LaneMemory) -> BurstMemory:
    """Return the burst memory with what is needed now.

    There is use for what is wanted while the lane is late with it, until the planned replicas have all served, and where
    nothing is remembered yet.
    """
    bursts = without_old_regrets(memory.bursts, view.now)
    since_s = (view.now - (bursts.planned_at or view.now)).total_seconds()
    is_settling = bursts.is_settling and view.counts.ready < memory.wanted and since_s < view.control.start_timeout_s
    # A forecast that was wrong ends at once, as a burst does; it is no need that may come again.
    need, late = needed_by_load(view).replicas, _lateness(view)
    if bursts.is_settling or not bursts.levels or late is not None:
        # The plan is for a peak: it is kept as a burst is, while nothing is known of the lane's own bursts.
        bursts = note_wanted(
            bursts,
            memory.wanted,
            view.now,
            is_burst=bursts.is_settling or (late is not None and is_far_over(view.counts.ready, need)),
            is_planned=bursts.is_settling and memory.wanted == view.bounded(view.plan.replicas),
        )
    bursts = changed(bursts, is_settling=is_settling)
    return note_need(bursts, need, view.now, calm=_shortest_calm_s(view))


def _held(validity: Validity) -> str:
    if validity is Validity.NONE:
        return "held: the gateway has given no figures yet"
    return f"held: gateway figures are {validity}"


def _overridden(view: LaneView, override: int) -> Target:
    wanted = view.bounded(override)
    bounds = view.spec.replicas
    held = "" if wanted == override else f", held to the lane's bounds {bounds.min}-{bounds.max}"
    # Forgetting the plan's count makes the plan count afresh once the override ends.
    quiet = replace(view.memory, wanted=wanted, planned=-1, up_since=None, bursts=BurstMemory())
    return Target(wanted=wanted, memory=quiet, code=ReasonCode.OPERATOR, reason=f"{override} set by an operator{held}")


def _grow(view: LaneView, memory: LaneMemory) -> Target | None:
    """Return the target under pressure, or None when nothing presses."""
    surely = needed_surely(view)
    need, late = surely.replicas, _lateness(view)
    if late is None and need <= memory.wanted:
        return None
    cause = late.message if late else f"{surely.why} needs {need}"
    counts = view.counts
    if need <= memory.wanted and counts.ready < memory.wanted:
        # What was ordered has not helped yet: its effect is judged from when it serves.
        waits = f"{cause}; {counts.ready} of {memory.wanted} ready, {counts.pending} pending"
        return Target(wanted=memory.wanted, memory=replace(memory, up_since=None), code=ReasonCode.LOAD, reason=waits)
    memory = replace(memory, up_since=memory.up_since or view.now)
    held_s = (view.now - (memory.up_since or view.now)).total_seconds()
    state = f"{cause} for {format_duration(held_s)}; {counts.ready} ready, {counts.pending} pending"
    at_once = _at_once(view, late)
    if held_s < view.control.scale_up_after_s and not at_once:
        return Target(wanted=memory.wanted, memory=memory, code=ReasonCode.LOAD, reason=state)
    more = _more(view) if late and counts.ready >= memory.wanted else 0
    # At its bound nothing is given, whose effect the next time would show.
    may_grow = view.bounded(memory.wanted + more) > memory.wanted
    if may_grow and not view.is_absence and view.pressure.offered_rps > 0:
        memory = replace(memory, bursts=note_shortfall(view, memory.bursts))
        more = max(more, shortfall_step(memory.bursts))
    if late or at_once:
        memory = replace(memory, bursts=note_raised(memory.bursts, now=view.now, calm=_calm_s(view, memory)))
    return _raised(view, memory, max(need, memory.wanted + more), state + at_once)


def _at_once(view: LaneView, late: Ratio | None) -> str:
    """Return why growth does not wait: nobody serves or will, the load has surely changed, the budget burns. Empty: it waits."""
    if has_none(view):
        return ", and nobody serves"
    if view.pressure.offered.is_new:
        return ", surely more than before"
    return (_burns(view) or _queues(view)) if late else ""


def _more(view: LaneView) -> int:
    """Return how many more a late lane is given: what it refuses as a share of what it serves, one at least."""
    served = max(1.0 / _GROWTH_MAX, 1.0 - view.pressure.unmet)
    return max(1, math.ceil(view.counts.ready / served - 1e-6) - view.counts.ready)


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
    raised = replace(memory, wanted=wanted, up_since=None, bursts=note_wanted(memory.bursts, wanted, view.now))
    return Target(wanted=wanted, memory=raised, code=ReasonCode.LOAD, reason=f"{memory.wanted} -> {wanted}: {state}")


@once_a_view
def _lateness(view: LaneView) -> Ratio | None:
    """Return what is over its limit; a paused lane waits on purpose, and another replica would not help."""
    if view.spec.interruptible and view.memory.step >= LadderStep.PAUSE_BATCH:
        return None
    found = (each for each in (view.pressure.worst, _kv_usage(view)) if each is not None and each.ratio > 1.0)
    return max(found, key=lambda each: each.ratio, default=None)


def _kv_usage(view: LaneView) -> Ratio | None:
    usage = view.engines.kv_usage_max
    if view.engines.validity is not Validity.OK or usage is None:
        return None
    sign = ">" if usage > _KV_USAGE_MAX else "<="
    return Ratio(ratio=usage / _KV_USAGE_MAX, message=f"KV cache {usage:.0%} {sign} {_KV_USAGE_MAX:.0%}")


def _burns(view: LaneView) -> str:
    burn = view.pressure.burn
    return f", burn {burn:.1f}x" if burn is not None and burn > _BURN_AT_ONCE else ""


def _queues(view: LaneView) -> str:
    """Return that the lane's queue has been too deep for long enough to warn of it, else an empty string."""
    firing = (each for each in view.memory.alerts if each.name is AlertName.QUEUE_DEPTH and each.clear_since is None)
    is_firing = any(each.fired_at is not None for each in firing)
    return f", {describe_alert(AlertName.QUEUE_DEPTH, view.alert_signals)}" if is_firing else ""


def _alarm(view: LaneView) -> str:
    """Return what keeps a lane from giving up replicas whatever its load needs; empty: nothing does."""
    if view.pressure.burns_fast:
        return describe_alert(AlertName.FAST_BURN, view.alert_signals)
    return _queues(view).removeprefix(", ")


def _calm_s(view: LaneView, memory: LaneMemory) -> float:
    """Return how long a need must have passed: no shorter than it takes to get a replica back, or than chance lasts."""
    by_chance_s = _CALM_REQUESTS * view.served_s_p50
    return max(calm_s(memory.bursts, shortest_s=_shortest_calm_s(view)), by_chance_s)


def _shortest_calm_s(view: LaneView) -> float:
    return max(view.control.scale_down_after_s, view.boot_s)


def _shrink(view: LaneView, memory: LaneMemory) -> Target:
    """Return what the last calm needed, straight down, where the rest would keep the SLO."""
    calm = _calm_s(view, memory)
    lately = needed_lately(memory.bursts, view.now, calm)
    by_load = view.bounded(max(lately.need, may_be_needed_now(view), needed_now(view).replicas))
    goal = max(by_load, shortfall_need(view))
    if goal >= memory.wanted > by_load:
        reason = f"{load_text(view)} needs {by_load} of {memory.wanted}, and {shortfall_text(view)}"
        return Target(wanted=memory.wanted, memory=memory, code=ReasonCode.LOAD_HELD, reason=reason)
    if goal >= memory.wanted:
        return _kept(view, memory, lately, calm)
    alarm = _alarm(view)
    if alarm:
        return Target(
            wanted=memory.wanted, memory=memory, code=ReasonCode.BUDGET_BURN, reason=f"{alarm}: none is given up"
        )
    blocked = _cannot_shrink(view, memory, goal)
    if blocked:
        return Target(wanted=memory.wanted, memory=memory, code=ReasonCode.LOAD_HELD, reason=blocked)
    if may_rise(memory.arrivals):
        reason = f"{load_text(view)} needs {goal} of {memory.wanted}; it rather rises: none is given up meanwhile"
        return Target(wanted=memory.wanted, memory=memory, code=ReasonCode.LOAD_HELD, reason=reason)
    lowered = replace(memory, wanted=goal, bursts=note_lowered(memory.bursts, view.now))
    reason = f"{memory.wanted} -> {goal}: {load_text(view)}; no more than {goal} needed for {format_duration(calm)}"
    return Target(wanted=goal, memory=lowered, code=ReasonCode.CALM, reason=reason)


def _kept(view: LaneView, memory: LaneMemory, peak: NeedPeak, calm: float) -> Target:
    """Return the same count, and whether the load, the lane's minimum or the burst memory holds it."""
    now = needed_now(view)
    need = now.replicas
    if need >= memory.wanted:
        is_minimum = memory.wanted <= view.spec.replicas.min
        ready, wanted = view.counts.ready, memory.wanted
        count = f"{ready} ready of {wanted}" if ready <= wanted else f"{ready} ready, {wanted} wanted"
        reason = f"{count}, the lane's minimum"
        if not is_minimum:
            reason = f"{now.why} needs {need} of {memory.wanted}"
        return Target(wanted=memory.wanted, memory=memory, code=ReasonCode.LOAD_HELD, reason=reason)
    if peak.need < memory.wanted:
        unknown = f"maybe {may_be_needed_now(view)}: too few requests have finished to say what one costs"
        reason = f"{load_text(view)} needs {need} of {memory.wanted}, {unknown}"
        return Target(wanted=memory.wanted, memory=memory, code=ReasonCode.LOAD_HELD, reason=reason)
    ago_s = (view.now - peak.at).total_seconds()
    left_s = kept_s(peak, calm) - ago_s
    what = f"{peak.need} were needed{' in a burst' if peak.is_burst else ''} {format_duration(ago_s)} ago"
    if peak.is_planned:
        what = f"{peak.need} are planned for the peak, and what it needs is not known for long"
    regrets = memory.bursts.regrets
    why = f" (given up too soon {regrets}x)" if regrets else ""
    reason = f"{load_text(view)} needs {need} of {memory.wanted}; {what}: given up in {format_duration(left_s)}{why}"
    return Target(wanted=memory.wanted, memory=memory, code=ReasonCode.BURST_MEMORY, reason=reason)


def _cannot_shrink(view: LaneView, memory: LaneMemory, goal: int) -> str:
    """Return why the lane keeps its replicas though the load needs fewer, or an empty string."""
    pressure = view.pressure
    if goal == 0:
        return "requests are waiting or running" if pressure.queued or pressure.in_flight else ""
    grows = memory.wanted / goal
    for found in (pressure.waiting, _kv_usage(view)):
        if found is not None and found.ratio * grows > _SHRINK_BELOW:
            return f"{found.message}; {goal} would be too near the limit"
    return ""

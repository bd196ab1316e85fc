"""Leaves more of a lane's KV caches free while they lose too much of what is still needed, step by step and back again.

Each level keeps what the ones before it do. A level is judged by requests that came after it alone, and stays until nothing
has been lost for long; one that is soon needed again is kept for twice as long the next time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.evictions.rate import is_over, is_well_below, rate_text
from fleetctl.core.routing.kv_cache import KV_SHARE
from fleetctl.model.eviction_report import EvictionMemory, SetEvictionGuard
from fleetctl.model.profile import Mode
from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.units import format_duration, format_fraction

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.desired import Desired
    from fleetctl.model.eviction import EvictionRules
    from fleetctl.model.gateway import LaneSnapshot, LaneWindow

GUARDED_KV_SHARE = 0.8  # the published reserve is a fifth
GUARDED_SLOTS = 0.75
LEVEL_MAX = 3
_WINDOWS_S = (60.0, 300.0, 3600.0)
# Requests that were there when the level changed end within so long, as a rule.
_SETTLES = timedelta(seconds=30)
_CALM = timedelta(minutes=15)
_CALM_WINDOW_S = 300.0
# Needed again so soon after it was let go: it was let go too early.
_AGAIN = timedelta(minutes=30)
_RAISED_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionGuard:
    """What a level asks of dispatch."""

    kv_share: float = KV_SHARE  # of a KV cache, what it may promise
    slots: float = 1.0  # of a replica's
    moves_long: bool = False  # long prompts go to replicas with more KV cache, where the lane may spill to any


_LEVELS = (
    EvictionGuard(),
    EvictionGuard(kv_share=GUARDED_KV_SHARE),
    EvictionGuard(kv_share=GUARDED_KV_SHARE, slots=GUARDED_SLOTS),
    EvictionGuard(kv_share=GUARDED_KV_SHARE, slots=GUARDED_SLOTS, moves_long=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardDecision:
    """Where a lane's guard stands after this decision."""

    memory: EvictionMemory
    actions: tuple[SetEvictionGuard, ...] = ()
    reasons: tuple[Reason, ...] = ()


def effective_guard(desired: Desired, memory: EvictionMemory) -> EvictionGuard:
    """Return what is in force: nothing in shadow mode."""
    return _LEVELS[memory.level if desired.profile.control.mode is Mode.ACTIVE else 0]


def decide_guard(
    lane: str, memory: EvictionMemory, traffic: LaneSnapshot | None, rules: EvictionRules, now: datetime
) -> GuardDecision:
    """Return the level of a lane's guard. Without current figures of the gateway (`traffic`) it stays as it is."""
    if not rules.act:
        return (
            _to(lane, memory, 0, now, "control.evictions.act is off") if memory.level else GuardDecision(memory=memory)
        )
    if traffic is None:
        why = f"{_level(memory.level)}; held: no current figures of the gateway" if memory.level else ""
        return GuardDecision(memory=memory, reasons=_reasons(why))
    over = _over(memory, traffic, rules, now)
    if over is not None and memory.level < LEVEL_MAX:
        return _raise(lane, memory, over, rules, now)
    if not memory.level:
        return GuardDecision(memory=memory)
    return _stay_or_lower(lane, memory, traffic, over, rules, now)


def _over(memory: EvictionMemory, traffic: LaneSnapshot, rules: EvictionRules, now: datetime) -> LaneWindow | None:
    """Return a window that lies after the last change and is surely over the limit."""
    for seconds in _WINDOWS_S:
        if memory.changed_at is not None and now - memory.changed_at < timedelta(seconds=seconds) + _SETTLES:
            return None
        window = traffic.window(seconds)
        if is_over(window, rules.rate_max):
            return window
    return None


def _raise(lane: str, memory: EvictionMemory, over: LaneWindow, rules: EvictionRules, now: datetime) -> GuardDecision:
    level = memory.level + 1
    again = memory.level == 0 and memory.changed_at is not None and now - memory.changed_at < _AGAIN
    raised = min(_RAISED_MAX, memory.raised + 1) if again else memory.raised if memory.level else 0
    message = f"{_level(level)}: {rate_text(over, rules.rate_max)}"
    return _to(lane, replace(memory, raised=raised), level, now, message)


def _stay_or_lower(  # all that the level is judged by
    lane: str,
    memory: EvictionMemory,
    traffic: LaneSnapshot,
    over: LaneWindow | None,
    rules: EvictionRules,
    now: datetime,
) -> GuardDecision:
    window = traffic.window(_CALM_WINDOW_S)
    is_calm = over is None and window.finished > 0 and is_well_below(window, rules.rate_max)
    if not is_calm:
        state = rate_text(over or window, rules.rate_max)
        return GuardDecision(
            memory=replace(memory, calm_since=None) if memory.calm_since is not None else memory,
            reasons=_reasons(f"{_level(memory.level)}; {state}"),
        )
    since = memory.calm_since or now
    calm = _CALM * 2**memory.raised
    if now - since < calm:
        left = format_duration(round((calm - (now - since)).total_seconds(), -1))
        return GuardDecision(
            memory=replace(memory, calm_since=since),
            reasons=_reasons(f"{_level(memory.level)}; let go a step in {left} if as little is lost"),
        )
    text = rate_text(window, rules.rate_max)
    return _to(
        lane,
        memory,
        memory.level - 1,
        now,
        f"{_level(memory.level - 1)}, after {format_duration(calm.total_seconds())}: {text}",
    )


def _to(lane: str, memory: EvictionMemory, level: int, now: datetime, message: str) -> GuardDecision:
    action = SetEvictionGuard(lane=lane, level=level, code=ReasonCode.EVICTION_GUARD, reason=message)
    changed = replace(memory, level=level, changed_at=now, calm_since=None)
    return GuardDecision(memory=changed, actions=(action,), reasons=_reasons(message))


def _level(level: int) -> str:
    """Return what a level does, in words."""
    if not level:
        return "KV caches and slots are as planned"
    guard = _LEVELS[level]
    parts = [f"{format_fraction(round(1.0 - guard.kv_share, 3))} of the KV caches are kept free"]
    if guard.slots < 1.0:
        parts.append(f"replicas have {format_fraction(guard.slots)} of their slots")
    if guard.moves_long:
        parts.append("long prompts go where there is more KV cache")
    return f"{', '.join(parts)} (level {level} of {LEVEL_MAX})"


def _reasons(message: str) -> tuple[Reason, ...]:
    return (ReasonCode.EVICTION_GUARD.because(message),) if message else ()

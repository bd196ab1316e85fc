"""Which alerts a lane has: pending while what they are about may pass, firing once it has lasted, over once it has been gone.

An alert fires after its condition has held for a while, and ends after that has been gone for as long; so one that comes and
goes is one alert (`for` and `keep_firing_for` of a Prometheus rule).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.slo.burn import BURN_RULES, BurnRule
from fleetctl.model.alert import Alert, AlertName, AlertRecord, AlertSeverity, AlertState
from fleetctl.model.budget import LaneBudget
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.model.budget import RequestCount

# Published: a burn alert holds for 2 m, the queue's for 30 s.
BURN_HELD = timedelta(seconds=120)
QUEUE_HELD = timedelta(seconds=30)
# Published: about 75 % of the concurrency at which the P99 reaches its target.
QUEUE_DEPTH_MAX = 24

_RULES = {rule.name: rule for rule in BURN_RULES}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSignals:
    """What a lane's alerts go by now."""

    budget: LaneBudget | None = None  # None: nothing has been counted yet
    waiting: int | None = None  # requests in the gateway's queue and the engines'; None: not known, or meant to wait


def note_alerts(
    before: tuple[AlertRecord, ...], signals: AlertSignals, now: datetime
) -> tuple[tuple[AlertRecord, ...], tuple[AlertRecord, ...], tuple[AlertRecord, ...]]:
    """Return what is to be remembered, and which alerts have just begun to fire, and just ended."""
    known = {record.name: record for record in before}
    kept, fired, ended = [], [], []
    for name in AlertName:
        record = known.get(name)
        after = _next(name, record, signals, now)
        if after is not None:
            kept.append(after)
        if after is not None and after.fired_at == now and (record is None or record.fired_at is None):
            fired.append(after)
        if after is None and record is not None and record.fired_at is not None:
            ended.append(record)
    return tuple(kept), tuple(fired), tuple(ended)


def is_the_case(name: AlertName, signals: AlertSignals) -> bool | None:
    """Whether what an alert is about is so now. None: nobody knows."""
    if name is AlertName.QUEUE_DEPTH:
        return None if signals.waiting is None else signals.waiting > QUEUE_DEPTH_MAX
    return signals.budget is not None and _RULES[name].is_over(signals.budget)


def shown_alerts(records: Iterable[AlertRecord], signals: AlertSignals, *, is_live: bool) -> tuple[Alert, ...]:
    """Return the alerts as they are shown, the most urgent first; without live figures only those that fire."""
    found = [
        Alert(
            name=record.name,
            severity=severity_of(record.name),
            state=record.state,
            since=record.since,
            message=_message(record, signals),
        )
        for record in records
        if is_live or record.fired_at is not None
    ]
    order = tuple(AlertSeverity)
    return tuple(sorted(found, key=lambda alert: (alert.state is not AlertState.FIRING, order.index(alert.severity))))


def severity_of(name: AlertName) -> AlertSeverity:
    """Return what somebody does about it."""
    return AlertSeverity.WARNING if name is AlertName.QUEUE_DEPTH else _RULES[name].severity


def describe_alert(name: AlertName, signals: AlertSignals) -> str:
    """Return what an alert is about, with its figures as they are now."""
    if name is AlertName.QUEUE_DEPTH:
        waiting = "-" if signals.waiting is None else signals.waiting
        return f"{waiting} requests waiting (> {QUEUE_DEPTH_MAX})"
    rule, budget = _RULES[name], signals.budget
    if budget is None:
        return f"error budget burn (> {rule.rate:g}x over {_windows(rule)})"
    long, short = budget.over(rule.long_s), budget.over(rule.short_s)
    return f"error budget burns {_rate(long)}, {_rate(short)} (> {rule.rate:g}x){_left(budget.budget.left)}"


def _next(name: AlertName, record: AlertRecord | None, signals: AlertSignals, now: datetime) -> AlertRecord | None:
    """Return an alert's record after this look; None: there is none (any more)."""
    is_so = is_the_case(name, signals)
    held = QUEUE_HELD if name is AlertName.QUEUE_DEPTH else BURN_HELD
    if is_so is None:
        return record
    if not is_so:
        if record is None or record.fired_at is None:
            return None
        gone = replace(record, clear_since=record.clear_since or now)
        return None if now - (gone.clear_since or now) >= held else gone
    if record is None:
        return AlertRecord(name=name, since=now)
    if record.clear_since is not None:
        record = replace(record, clear_since=None)
    return replace(record, fired_at=now) if record.fired_at is None and now - record.since >= held else record


def _message(record: AlertRecord, signals: AlertSignals) -> str:
    what = describe_alert(record.name, signals)
    held = BURN_HELD if record.name is not AlertName.QUEUE_DEPTH else QUEUE_HELD
    if record.clear_since is not None:
        return f"{what}; not any more, over once that has lasted {format_duration(held.total_seconds())}"
    return what


def _left(left: float | None) -> str:
    if left is None:
        return ""
    return f", {left:.0%} of it left" if left > 0.0 else ", all of it spent"


def _windows(rule: BurnRule) -> str:
    return f"{format_duration(rule.long_s)} and {format_duration(rule.short_s)}"


def _rate(count: RequestCount) -> str:
    rate = "-" if count.burn is None else f"{count.burn:.3g}x"
    return f"{rate} over {format_duration(count.window_s)}"

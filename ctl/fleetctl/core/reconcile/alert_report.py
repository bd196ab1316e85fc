"""What the journal says of a lane's alerts: that one began to fire, and that it ended."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.slo.alerts import describe_alert, note_alerts, severity_of
from fleetctl.model.decision import LaneMemory, ReportAlert
from fleetctl.model.reason import ReasonCode
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.core.slo.alerts import AlertSignals
    from fleetctl.model.alert import AlertRecord


def report_alerts(
    lane: str, memory: LaneMemory, signals: AlertSignals, now: datetime
) -> tuple[LaneMemory, tuple[ReportAlert, ...]]:
    """Return the memory with the lane's alerts as they are now, and what is to be journalled of them."""
    alerts, fired, ended = note_alerts(memory.alerts, signals, now)
    if alerts == memory.alerts:
        return memory, ()
    reports = [_fired(lane, record, signals) for record in fired]
    reports += [_ended(lane, record, signals, now) for record in ended]
    return replace(memory, alerts=alerts), tuple(reports)


def _fired(lane: str, record: AlertRecord, signals: AlertSignals) -> ReportAlert:
    return ReportAlert(
        lane=lane,
        code=ReasonCode.ALERT_FIRING,
        reason=f"{record.name}: {describe_alert(record.name, signals)}",
        noted=_noted(record),
    )


def _ended(lane: str, record: AlertRecord, signals: AlertSignals, now: datetime) -> ReportAlert:
    lasted_s = ((record.clear_since or now) - record.since).total_seconds()
    return ReportAlert(
        lane=lane,
        code=ReasonCode.ALERT_RESOLVED,
        reason=f"{record.name} over after {format_duration(lasted_s)}: {describe_alert(record.name, signals)}",
        has_ended=True,
        noted={**_noted(record), "lasted_s": round(lasted_s, 1)},
    )


def _noted(record: AlertRecord) -> dict[str, float | str]:
    return {
        "alert": record.name.value,
        "severity": severity_of(record.name).value,
        "since": record.since.isoformat(timespec="seconds"),
    }

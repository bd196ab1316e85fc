"""Which span of time a run stands for: its beginning is part of the run's key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.model.runbook import Period
from fleetctl.schedules.cron import previous_run
from fleetctl.schedules.time_zones import zone_of

if TYPE_CHECKING:
    from fleetctl.model.runbook import Runbook


def stands_for(runbook: Runbook, at: datetime) -> datetime:
    """Return the beginning of the period that a run at this instant stands for, in UTC."""
    if runbook.period is Period.NONE:
        return at
    if runbook.period is Period.SCHEDULE and runbook.schedule:
        return previous_run(runbook.schedule, at, time_zone=runbook.time_zone)
    local = at.astimezone(zone_of(runbook.time_zone)).replace(second=0, microsecond=0)
    if runbook.period is not Period.MINUTE:
        local = local.replace(minute=0)
    if runbook.period in (Period.DAY, Period.WEEK):
        local = local.replace(hour=0)
    if runbook.period is Period.WEEK:
        local -= timedelta(days=local.weekday())
    return local.astimezone(UTC)

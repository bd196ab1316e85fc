"""Whether a scheduled run is due: on time, missed and to be caught up, missed and to be left, or not of this schedule."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fleetctl.schedules.cron import previous_run

# Cron and systemd start a job within seconds of its minute; a machine under load takes its time to get there. A start
# that is later than this stands for a run that was missed.
ON_TIME_WITHIN_S = 300.0


class Timeliness(StrEnum):
    """How a start relates to the scheduled instant it stands for."""

    ON_TIME = "on-time"
    CATCH_UP = "catch-up"  # missed, and the runbook says that one run makes up for it
    TOO_LATE = "too-late"  # missed, and the runbook says skip, or longer ago than it allows
    NOT_YET = "not-yet"  # the last instant lies before the schedule was installed


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The scheduled instant that a start stands for, and how late it is."""

    scheduled_at: datetime
    late_s: float
    timeliness: Timeliness

    @property
    def is_due(self) -> bool:
        """Whether the run is to be made, if none was made for this instant."""
        return self.timeliness in (Timeliness.ON_TIME, Timeliness.CATCH_UP)


def due(
    cron: str, now: datetime, *, time_zone: str = "", catch_up_within_s: float | None, since: datetime | None = None
) -> Due:
    """Return what a start at `now` stands for.

    Several missed instants are one: the last of them. `catch_up_within_s` is how long ago that may be; None: a missed
    run is skipped. `since` is when the schedule was installed: what lies before it was never missed. Raises ConfigError.
    """
    at = previous_run(cron, now, time_zone=time_zone)
    late_s = (now - at).total_seconds()
    return Due(scheduled_at=at, late_s=late_s, timeliness=_timeliness(at, late_s, catch_up_within_s, since))


def _timeliness(at: datetime, late_s: float, catch_up_within_s: float | None, since: datetime | None) -> Timeliness:
    if since is not None and at < since:
        return Timeliness.NOT_YET
    if late_s <= ON_TIME_WITHIN_S:
        return Timeliness.ON_TIME
    if catch_up_within_s is not None and late_s <= catch_up_within_s:
        return Timeliness.CATCH_UP
    return Timeliness.TOO_LATE

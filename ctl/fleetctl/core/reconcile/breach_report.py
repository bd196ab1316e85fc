"""What the journal says of a lane's breaches: that one began, that it ended, and of one that comes and goes no more."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.slo.wording import describe
from fleetctl.model.decision import LaneMemory, ReportBreach
from fleetctl.model.reason import ReasonCode
from fleetctl.model.verdict import Compliance, ReportedBreach
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.verdict import SloVerdict

# A breach that comes back within this is the same trouble: its next end is reported once it has been over for as long.
_SAME = timedelta(seconds=60)


def report_breach(
    lane: str, memory: LaneMemory, verdict: SloVerdict, now: datetime, *, gateway_age_s: float
) -> tuple[LaneMemory, tuple[ReportBreach, ...]]:
    """Return what is to be journalled of the breach in the lane's memory, and the memory that it was.

    A gateway that has just started has forgotten what it measured, and a lane without requests shows nothing: neither ends a
    breach before it has been over for a minute.
    """
    if memory.breach is not None and memory.breach.ended_at is None:
        return _in_breach(lane, memory, verdict, now)
    reported = memory.reported
    if reported is None:
        return memory, ()
    if reported.ended_at is not None:
        return (replace(memory, reported=None) if now - reported.ended_at >= _SAME else memory), ()
    quiet_since = reported.quiet_since or now
    is_shown = bool(verdict.offered) and gateway_age_s >= _SAME.total_seconds() and not reported.again
    if not is_shown and now - quiet_since < _SAME:
        return replace(memory, reported=replace(reported, quiet_since=quiet_since)), ()
    return replace(memory, reported=replace(reported, ended_at=now)), (_end(lane, reported, quiet_since, verdict),)


def _in_breach(
    lane: str, memory: LaneMemory, verdict: SloVerdict, now: datetime
) -> tuple[LaneMemory, tuple[ReportBreach, ...]]:
    reported, missed = memory.reported, verdict.having(Compliance.MISSED)
    if reported is not None and reported.ended_at is None:
        return replace(memory, reported=replace(reported, quiet_since=None)), ()
    if not missed:
        return memory, ()
    again = reported.again + 1 if reported else 0
    ago = format_duration((now - reported.ended_at).total_seconds()) if reported and reported.ended_at else ""
    journalled = ReportedBreach(since=now, names=tuple(finding.name for finding in missed), again=again)
    message = "; ".join(describe(finding) for finding in missed)
    begun = ReportBreach(
        lane=lane,
        code=ReasonCode.SLO_MISSED,
        reason=f"again, {ago} after the last one: {message}" if again else message,
        noted={
            "finding": missed[0].name,
            "window_s": missed[0].window_s,
            "factor": round(missed[0].factor, 3),
            "since": now.isoformat(timespec="seconds"),
        },
    )
    return replace(memory, reported=journalled), (begun,)


def _end(lane: str, reported: ReportedBreach, over_since: datetime, verdict: SloVerdict) -> ReportBreach:
    lasted_s = (over_since - reported.since).total_seconds()
    names = ", ".join(reported.names)
    lasted = f"after {format_duration(lasted_s)}"
    found = f"{names} kept again {lasted}" if verdict.offered else f"nothing is measured any more {lasted}: {names}"
    return ReportBreach(
        lane=lane,
        code=ReasonCode.SLO_KEPT,
        reason=found,
        has_ended=True,
        noted={"since": reported.since.isoformat(timespec="seconds"), "lasted_s": round(lasted_s, 1)},
    )

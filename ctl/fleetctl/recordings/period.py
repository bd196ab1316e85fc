"""A stretch of a recording, read whole: the requests in the order they came, and what the fleet had meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ConfigError
from fleetctl.model.action import EntryKind
from fleetctl.model.decision import ACTION_NAMES
from fleetctl.model.desired import Desired
from fleetctl.model.interruption import InterruptionRecord
from fleetctl.model.recording import RecordedRequest, RecordingGap, RecordingHeader
from fleetctl.model.replica import Replica
from fleetctl.recordings.reader import read_recording
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fleetctl.model.journal import JournalEntry
    from fleetctl.model.recording import RecordingEnd, RecordingRow

_EVER = datetime.max.replace(tzinfo=UTC)
# 580 bytes each (tracemalloc, CPython 3.11): under two gigabytes.
REQUESTS_MAX = 3_000_000


@dataclass(slots=True, kw_only=True)
class RecordedPeriod:
    """What a recording holds of one stretch of time."""

    header: RecordingHeader
    since: datetime
    until: datetime
    desired: Desired  # as the stretch began
    requests: list[RecordedRequest] = field(default_factory=list)  # that came in it, in that order
    replicas: dict[str, list[Replica]] = field(default_factory=dict)  # by id: its records, until the stretch ends
    interruptions: dict[str, InterruptionRecord] = field(default_factory=dict)  # by replica
    gaps: list[RecordingGap] = field(default_factory=list)
    decisions: dict[str, int] = field(default_factory=dict)  # the controller's actions, by name and reason code
    by_people: int = 0  # what operators and other commands did
    changes: int = 0  # of what should be
    requests_before: int = 0  # that came before it and ended later, or were under way as the recording began
    requests_open: int | None = None  # when the recording ended, if it ended in the stretch; None: nobody knows
    is_cut: bool = True  # it has no last row

    @property
    def duration_s(self) -> float:
        """How long it is."""
        return (self.until - self.since).total_seconds()


def read_period(path: Path, *, offset_s: float = 0.0, duration_s: float | None = None) -> RecordedPeriod:
    """Return a recording's stretch from `offset_s` on. Raises ConfigError, NotFoundError."""
    rows = read_recording(path)
    header = next((row.header for row in rows if row.header is not None), None)
    if header is None:
        raise ConfigError(f"{path}: is empty", hint="it was cut before its first row was written")
    since = header.began_at + timedelta(seconds=offset_s)
    limit = _EVER if duration_s is None else since + timedelta(seconds=duration_s)
    building = _PeriodBuilder(header, since, limit)
    for row in rows:
        building.note(row)
    period = building.period
    period.until = min(limit, building.last_at)
    if period.duration_s <= 0:
        held = format_duration((building.last_at - header.began_at).total_seconds())
        nothing = f", and nothing from {format_duration(offset_s)} on" if offset_s else ""
        raise ConfigError(f"{path}: holds {held}{nothing}", hint="lower --offset" if offset_s else "")
    period.requests.sort(key=attrgetter("at"))
    return period


class _PeriodBuilder:
    """Takes rows in, in the order they were written."""

    def __init__(self, header: RecordingHeader, since: datetime, limit: datetime) -> None:
        self.period = RecordedPeriod(header=header, since=since, until=since, desired=header.desired)
        self.last_at = header.began_at  # of all that was taken in
        self._limit = limit
        self._taking: dict[str, Callable[[Any], datetime]] = {
            "request": self._request,
            "replica": self._replica,
            "decision": self._decision,
            "interruption": self._interruption,
            "desired": self._desired,
            "gap": self._gap,
            "end": self._end,
        }

    def note(self, row: RecordingRow) -> None:
        """Take a row in."""
        for kind, take in self._taking.items():
            value = getattr(row, kind)
            if value is not None:
                self.last_at = max(self.last_at, take(value))
                return

    def _is_within(self, at: datetime) -> bool:
        return self.period.since <= at < self._limit

    def _request(self, request: RecordedRequest) -> datetime:
        requests = self.period.requests
        if self._is_within(request.at):
            requests.append(request)
        elif request.at < self.period.since:
            self.period.requests_before += 1
        if len(requests) > REQUESTS_MAX:
            hint = "take a part: --offset 2h --duration 1h"
            raise ConfigError(f"more than {REQUESTS_MAX:,} requests are too many at once", hint=hint)
        return request.at + timedelta(seconds=request.total_s)

    def _replica(self, replica: Replica) -> datetime:
        if replica.changed_at < self._limit:
            self.period.replicas.setdefault(replica.id, []).append(replica)
        return replica.changed_at

    def _decision(self, entry: JournalEntry) -> datetime:
        if not self._is_within(entry.at):
            return entry.at
        if entry.kind is EntryKind.OPERATOR:
            self.period.by_people += 1
        elif entry.action in ACTION_NAMES and entry.ok and not entry.shadow:
            what = f"{entry.action} {entry.code.value}"
            self.period.decisions[what] = self.period.decisions.get(what, 0) + 1
        return entry.at

    def _interruption(self, taken: InterruptionRecord) -> datetime:
        if self._is_within(taken.at):
            self.period.interruptions[taken.replica_id] = taken
        return taken.at

    def _desired(self, desired: Desired) -> datetime:
        if desired.changed_at <= self.period.since:
            self.period.desired = desired
        elif desired.changed_at < self._limit:
            self.period.changes += 1
        return desired.changed_at

    def _gap(self, gap: RecordingGap) -> datetime:
        if gap.until > self.period.since and gap.since < self._limit:
            self.period.gaps.append(gap)
        return gap.until

    def _end(self, end: RecordingEnd) -> datetime:
        self.period.is_cut = False
        if end.at <= self._limit:
            self.period.requests_open = end.requests_open
        return end.at

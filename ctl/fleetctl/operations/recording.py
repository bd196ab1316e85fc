"""Records a running fleet into a file: what it is asked for, what becomes of it, what is decided, what it has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl import os_signals
from fleetctl.errors import ConfigError, UnavailableError, is_disk_full
from fleetctl.model.interruption import InterruptionRecord
from fleetctl.model.recording import RecordingRow
from fleetctl.operations.lookup import running_fleet
from fleetctl.ports.records import Collection
from fleetctl.recordings.recorder import Recorder
from fleetctl.recordings.writer import RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.operations.site import Site

# A lane's ring holds a thousand requests: two looks a second keep up with two thousand a second.
_LOOK_S = 0.5
# Readings in a row before the file is written and the clock is looked at again.
_READINGS_MAX = 50
_ENTRIES_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRequest:
    """What is to be recorded, as a person asks for it."""

    path: Path
    bytes_max: int
    for_s: float | None = None  # None: until Ctrl-C
    may_replace: bool = False  # a file that is there


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingProgress:
    """What has been recorded until now."""

    fleet: str
    began_at: datetime
    at: datetime
    requests: int
    requests_missed: int  # known to be missing
    bytes: int
    is_gateway_silent: bool = False
    ended_by: str = ""  # why it ended; empty: it goes on


def record(
    site: Site,
    fleet: str,
    request: RecordingRequest,
    *,
    on_progress: Callable[[RecordingProgress], None] = lambda seen: None,
) -> RecordingProgress:
    """Record a fleet until so long has passed, the file is full, the fleet is gone, or Ctrl-C; return what was recorded.

    Raises ConfigError where the file cannot be written, NotFoundError, UnavailableError without a gateway.
    """
    path = request.path
    desired = running_fleet(site, fleet)
    began_at = site.clock.now()
    recorder = Recorder(desired, at=began_at, version=version("fleetctl"))
    watch = _FleetWatch(site, fleet, recorder)
    first = list(watch.begin())
    try:
        with RecordingWriter(path, may_replace=request.may_replace) as writer:
            writer.write(first)
            return _follow(site, watch, writer, request, on_progress)
    except FileExistsError as error:
        raise ConfigError(f"{path}: exists", hint="name another file, or replace it: --force") from error
    except OSError as error:
        why = "the disk is full; what was recorded until now is readable" if is_disk_full(error) else error.strerror
        raise ConfigError(f"{path}: cannot be written: {why or error}") from error


def _follow(
    site: Site,
    watch: _FleetWatch,
    writer: RecordingWriter,
    request: RecordingRequest,
    on_progress: Callable[[RecordingProgress], None],
) -> RecordingProgress:
    began_s, ended_by = site.clock.monotonic_s(), ""
    try:
        while not ended_by:
            site.clock.sleep_blocking(_LOOK_S)
            writer.write(watch.look())
            on_progress(watch.progress(writer))
            ended_by = _end_of(watch, writer, request, elapsed_s=site.clock.monotonic_s() - began_s)
    except KeyboardInterrupt as exc:
        os_signals.accept(exc)
        ended_by = "Ctrl-C"
        writer.write(watch.look())
    writer.write([watch.end()])
    return watch.progress(writer, ended_by=ended_by)


def _end_of(watch: _FleetWatch, writer: RecordingWriter, request: RecordingRequest, *, elapsed_s: float) -> str:
    """Return why the recording ends now; empty: it goes on."""
    if not watch.is_up:
        return "the fleet is gone"
    if writer.bytes >= request.bytes_max:
        return "the file is as large as it may become (--max-size)"
    return "its time is over (--for)" if request.for_s is not None and elapsed_s >= request.for_s else ""


class _FleetWatch:
    """Looks at a fleet, as everybody may, and has a recorder make rows of it."""

    def __init__(self, site: Site, fleet: str, recorder: Recorder) -> None:
        self._site = site
        self._fleet = fleet
        self._recorder = recorder
        self._is_silent = False
        self.is_up = True

    def begin(self) -> Iterator[RecordingRow]:
        """Yield the first rows: header and replicas. Raises UnavailableError without a gateway."""
        recorder, store = self._recorder, self._site.store
        yield RecordingRow(header=recorder.header)
        newest = store.journal(self._fleet, limit=1)
        recorder.journal_seq = newest[-1].seq if newest else 0
        yield from recorder.note_replicas(store.replicas(self._fleet))
        yield from recorder.note_requests(self._site.host.request_traces(self._fleet, recorder.query))

    def look(self) -> Iterator[RecordingRow]:
        """Yield what is new."""
        recorder, store = self._recorder, self._site.store
        desired = store.fleet(self._fleet)
        self.is_up = desired is not None
        if desired is not None:
            yield from recorder.note_desired(desired)
        yield from recorder.note_replicas(store.replicas(self._fleet))
        after = recorder.journal_seq or 0
        yield from recorder.note_decisions(store.journal(self._fleet, after=after, limit=_ENTRIES_MAX))
        taken = store.records(Collection.INTERRUPTIONS, fleet=self._fleet, since=recorder.header.began_at)
        yield from recorder.note_interruptions(each.value_as(InterruptionRecord) for each in taken)
        yield from self._requests()

    def _requests(self) -> Iterator[RecordingRow]:
        """Yield readings of the gateway until it has no more to tell."""
        recorder = self._recorder
        for _ in range(_READINGS_MAX):
            try:
                traces = self._site.host.request_traces(self._fleet, recorder.query)
            except UnavailableError:
                # A gateway that is being restarted: what it had not told is noted once the next one answers.
                self._is_silent = True
                return
            self._is_silent = False
            yield from recorder.note_requests(traces)
            if not recorder.has_more(traces):
                return

    def end(self) -> RecordingRow:
        """Return the last row."""
        return self._recorder.end(at=self._site.clock.now(), requests_open=self._open_now())

    def _open_now(self) -> int | None:
        """Return how many requests wait or run now; None: nobody says."""
        try:
            status = self._site.host.status(self._fleet)
        except UnavailableError:
            return None
        traffic = [lane.traffic for lane in status.lanes if lane.traffic is not None]
        return sum(each.queued + each.in_flight for each in traffic) if traffic else None

    def progress(self, writer: RecordingWriter, *, ended_by: str = "") -> RecordingProgress:
        """Return what has been recorded until now."""
        recorder = self._recorder
        return RecordingProgress(
            fleet=self._fleet,
            began_at=recorder.header.began_at,
            at=self._site.clock.now(),
            requests=recorder.requests,
            requests_missed=recorder.requests_missed,
            bytes=writer.bytes,
            is_gateway_silent=self._is_silent,
            ended_by=ended_by,
        )

"""Makes rows of what is seen of a fleet: each thing once, and what was missed too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.recording import (
    GapKind,
    RecordedRequest,
    RecordingEnd,
    RecordingGap,
    RecordingHeader,
    RecordingRow,
)
from fleetctl.model.request_trace import TraceQuery

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from fleetctl.model.desired import Desired
    from fleetctl.model.interruption import InterruptionRecord
    from fleetctl.model.journal import JournalEntry
    from fleetctl.model.replica import Replica
    from fleetctl.model.request_trace import RequestTrace, RequestTraces

# Of one answer, which the gateway makes between two tokens of its streams: 2.2 ms on a busy core (2026-11-23, 40-token streams).
REQUESTS_A_READING = 100


class Recorder:
    """Remembers what has been written: memory grows with the replicas that live, not with time."""

    def __init__(self, desired: Desired, *, at: datetime, version: str) -> None:
        self._desired = desired
        self.header = RecordingHeader(fleet=desired.fleet, began_at=at, written_by=version, desired=desired)
        self.requests = self.requests_missed = 0
        self.journal_seq: int | None = None  # of the last entry written; None: not looked yet
        self._replicas: dict[str, Replica] = {}
        self._interruptions: dict[str, InterruptionRecord] = {}  # by replica: those whose end is not written yet
        self._gateway_since: datetime | None = None
        self._seq: int | None = None
        self._read_at = at

    # Requests.

    @property
    def query(self) -> TraceQuery:
        """What to ask the gateway next; at first where it stands, so that what ended before is left out."""
        if self._seq is None:
            return TraceQuery(limit=1)
        return TraceQuery(after=self._seq, limit=REQUESTS_A_READING)

    def has_more(self, traces: RequestTraces) -> bool:
        """Whether the gateway had more to tell than it did."""
        return self._seq is not None and self._seq < traces.last_seq

    def note_requests(self, traces: RequestTraces) -> Iterator[RecordingRow]:
        """Yield what has ended since the last reading, and what is missing."""
        is_first = self._seq is None
        if self._gateway_since is not None and traces.started_at != self._gateway_since:
            gap = RecordingGap(kind=GapKind.GATEWAY_RESTART, since=self._read_at, until=traces.started_at)
            yield RecordingRow(gap=gap)
            self._gateway_since, self._seq, self._read_at = traces.started_at, 0, traces.started_at
            # What was asked of the gateway before does not name these.
            return
        self._gateway_since = traces.started_at
        if self._seq is None:
            self._seq = traces.last_seq
        for trace in () if is_first else traces.requests:
            missing = trace.seq - self._seq - 1
            if missing > 0:
                yield self._overrun(missing, traces.at)
            self._seq = trace.seq
            self.requests += 1
            yield RecordingRow(request=recorded(trace))
        self._read_at = traces.at

    def _overrun(self, missing: int, at: datetime) -> RecordingRow:
        self.requests_missed += missing
        gap = RecordingGap(kind=GapKind.OVERRUN, since=self._read_at, until=at, requests=missing)
        return RecordingRow(gap=gap)

    # The fleet.

    def note_desired(self, desired: Desired) -> Iterator[RecordingRow]:
        """Yield what should be, where that has changed."""
        if desired.generation != self._desired.generation or desired.overrides != self._desired.overrides:
            yield RecordingRow(desired=desired)
        self._desired = desired

    def note_replicas(self, records: Iterable[Replica]) -> Iterator[RecordingRow]:
        """Yield the records that have changed; of those that had ended before, none."""
        seen = {record.id: record for record in records}
        for name, record in seen.items():
            was = self._replicas.get(name)
            if was != record and (was is not None or record.state.is_live):
                yield RecordingRow(replica=record)
        self._replicas = {
            name: record for name, record in seen.items() if record.state.is_live or name in self._replicas
        }

    def note_decisions(self, entries: Iterable[JournalEntry]) -> Iterator[RecordingRow]:
        """Yield what was decided since."""
        for entry in entries:
            if self.journal_seq is None or entry.seq > self.journal_seq:
                self.journal_seq = entry.seq
                yield RecordingRow(decision=entry)

    def note_interruptions(self, records: Iterable[InterruptionRecord]) -> Iterator[RecordingRow]:
        """Yield the nodes that were taken since the recording began, as more is known of them."""
        seen = {record.replica_id: record for record in records if record.at >= self.header.began_at}
        for name, record in seen.items():
            if self._interruptions.get(name) != record:
                yield RecordingRow(interruption=record)
        self._interruptions = seen

    def end(self, *, at: datetime, requests_open: int | None) -> RecordingRow:
        """Return the last row."""
        return RecordingRow(end=RecordingEnd(at=at, requests_open=requests_open))


def recorded(trace: RequestTrace) -> RecordedRequest:
    """Return what is recorded of a request."""
    return RecordedRequest(
        at=trace.at,
        lane=trace.lane,
        client=trace.client,
        is_lane_named=trace.is_lane_named,
        tier=trace.tier,
        model=trace.model,
        in_place_of=trace.in_place_of,
        adapter=trace.adapter,
        is_stream=trace.is_stream,
        prompt_tokens=trace.prompt_tokens,
        cached_tokens=trace.cached_tokens,
        output_tokens=trace.output_tokens,
        output_tokens_max=trace.output_tokens_max,
        deadline_s=trace.max_wait_s,
        queue_wait_s=trace.queue_wait_s,
        ttft_s=trace.ttft_s,
        total_s=trace.total_s,
        gaps=trace.gaps,
        gaps_over=trace.gaps_over,
        gap_s_mean=trace.gap_s_mean,
        gap_s_p99=trace.gap_s_p99,
        gap_s_max=trace.gap_s_max,
        continuations=trace.continuations,
        degraded=trace.degraded,
        refusal=trace.refusal,
        replica=trace.replica,
        ending=trace.ending,
        verdict=trace.verdict,
    )

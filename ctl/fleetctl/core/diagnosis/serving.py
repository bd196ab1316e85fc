"""When each replica of a lane served: requests of a time when another did not serve yet say nothing of which is the slower."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.diagnosis.evidence import LaneEvidence
    from fleetctl.model.replica import Replica
    from fleetctl.model.request_trace import RequestTrace


@dataclass(frozen=True, slots=True)
class ServingSpan:
    """From when until when a replica was in its lane's rotation, as far as is known."""

    since: datetime
    until: datetime

    def holds(self, at: datetime) -> bool:
        """Whether it served at an instant."""
        return self.since <= at <= self.until


def sent_at(trace: RequestTrace) -> datetime:
    """Return when a request was last sent to a replica; when it was accepted where it never was."""
    return trace.at + timedelta(seconds=trace.attempts[-1].at_s if trace.attempts else 0.0)


def serving_spans(lane: LaneEvidence) -> dict[str, ServingSpan]:
    """Return when each replica served that is known to be of the lane, or that a request of it was sent to lately."""
    sent: dict[str, list[datetime]] = {}
    for trace in lane.requests:
        if trace.attempts:
            sent.setdefault(trace.replica, []).append(sent_at(trace))
    known = {
        each.record.id: each.record
        for each in lane.fleet.status.replicas
        if each.record.lane == lane.name and (each.record.ready_at is not None or each.record.id in sent)
    }
    now = lane.fleet.now
    if not known:
        return {name: ServingSpan(min(instants), now) for name, instants in sent.items()}
    return {name: _span(known.get(name), sent.get(name, []), now) for name in dict.fromkeys((*known, *sent))}


def _span(record: Replica | None, sent: list[datetime], now: datetime) -> ServingSpan:
    """Return a replica's span; of one whose record is gone, from the first request that it was sent to the last."""
    ready_at = record.ready_at if record is not None else None
    since = min([*sent, *([ready_at] if ready_at is not None else [])], default=now)
    if record is not None and record.state is ReplicaState.READY:
        return ServingSpan(since, now)
    if record is not None and record.state is ReplicaState.DRAINING:
        return ServingSpan(since, max([record.changed_at, *sent]))
    return ServingSpan(since, max(sent, default=since))


def beside_peers(lane: LaneEvidence, requests: Iterable[RequestTrace], name: str = "") -> list[RequestTrace]:
    """Return those of the requests that were sent while a replica and a peer of its served. Empty: each request's own replica."""
    spans = serving_spans(lane)
    found = []
    for trace in requests:
        own, at = name or trace.replica, sent_at(trace)
        serving = {other for other, span in spans.items() if span.holds(at)}
        if trace.attempts and own in serving and len(serving) > 1:
            found.append(trace)
    return found

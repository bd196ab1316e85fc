"""What the journal says of the unit in which a lane's tokens leave: that the tokens of a chunk have become more, or fewer."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING

from fleetctl.model.reason import ReasonCode
from fleetctl.model.stream import StreamUnit
from fleetctl.model.stream_report import ReportStreamUnit
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from fleetctl.model.decision import LaneMemory
    from fleetctl.model.replica import Replica
    from fleetctl.model.stream import StreamFigures

# Fewer say more of their lengths than of the engine: an answer's first chunk may be of another size than the rest.
_ANSWERS_MIN = 10
_CHUNKS_MIN = 200
# An engine whose steps take longer under load merges a token or two; an update or a setting changes the unit by a factor.
_FACTOR = 1.5
# For so long the new unit must hold; replica figures are of half a minute to one, so that a mixture of both never counts.
_HOLD = timedelta(seconds=60)
# And so long where the same engine, started in the same way, did it: a wave of load comes and goes.
_HOLD_UNCHANGED = timedelta(minutes=10)
_REFRESHED = timedelta(minutes=10)
# The pace is the same to this share.
_SAME_PACE = 0.2


def report_unit(
    lane: str, memory: LaneMemory, streams: Sequence[tuple[Replica, StreamFigures]], now: datetime
) -> tuple[LaneMemory, tuple[ReportStreamUnit, ...]]:
    """Return the memory with the lane's unit as it is now, and what is to be journalled of it.

    It goes by the replicas that were started as the newest one that answers was: during a rollout the average of the lane
    is of neither revision.
    """
    seen, known = _unit_of(streams, now), memory.unit
    if seen is None:
        return memory, ()
    if known is None:
        return replace(memory, unit=seen), ()
    if not _is_other(known.tokens_per_chunk, seen.tokens_per_chunk):
        return _same(memory, known, seen), ()
    other = memory.other_unit
    if other is None or _is_other(other.tokens_per_chunk, seen.tokens_per_chunk):
        return replace(memory, other_unit=seen), ()
    if now - other.at < (_HOLD_UNCHANGED if _is_alike(known, seen) else _HOLD):
        return memory, ()
    return replace(memory, unit=seen, other_unit=None), (_changed(lane, known, seen, other.at),)


def _same(memory: LaneMemory, known: StreamUnit, seen: StreamUnit) -> LaneMemory:
    """Return the memory where the unit is what it was; its pace and its engine are brought up to date now and then.

    Not the unit itself: it would follow one that changes slowly, and nobody would be told.
    """
    if memory.other_unit is None and _is_alike(known, seen) and seen.at - known.at < _REFRESHED:
        return memory
    return replace(memory, unit=replace(seen, tokens_per_chunk=known.tokens_per_chunk), other_unit=None)


def _is_alike(known: StreamUnit, seen: StreamUnit) -> bool:
    return (known.engine, known.launch_digest) == (seen.engine, seen.launch_digest)


def _unit_of(streams: Sequence[tuple[Replica, StreamFigures]], now: datetime) -> StreamUnit | None:
    """Return the unit of the newest replicas that have answered enough, with those started like them. None: too few did."""
    by_start: dict[tuple[str, str, str], list[tuple[Replica, StreamFigures]]] = {}
    for record, figures in streams:
        if figures.answers:
            start = record.launch_digest, record.engine, record.reported_version
            by_start.setdefault(start, []).append((record, figures))
    starts = list(by_start.values())
    if len(starts) > 1:  # during a rollout
        starts.sort(key=lambda alike: max((record.created_at, record.id) for record, _ in alike), reverse=True)
    for started in starts:
        record, alike = started[0][0], [figures for _, figures in started]
        chunks = sum([each.chunks for each in alike])
        if chunks >= _CHUNKS_MIN and sum([each.answers for each in alike]) >= _ANSWERS_MIN:
            return StreamUnit(
                tokens_per_chunk=sum([each.tokens for each in alike]) / chunks,
                gap_s=median([each.gap.p50_s for each in alike]),
                engine=_engine(record),
                launch_digest=record.launch_digest,
                at=now,
            )
    return None


def _engine(record: Replica) -> str:
    return f"{record.engine} {record.reported_version}".rstrip()


def _is_other(tokens: float, others: float) -> bool:
    return max(tokens, others) >= _FACTOR * min(tokens, others)


def _changed(lane: str, before: StreamUnit, now: StreamUnit, since: datetime) -> ReportStreamUnit:
    was, other = before.tokens_per_chunk, now.tokens_per_chunk
    by = f" with {now.engine}, {before.engine} before" if now.engine != before.engine else ""
    if not by and now.launch_digest != before.launch_digest:
        by = " since it is started otherwise"
    rate_was, rate = (unit.gap_s / unit.tokens_per_chunk for unit in (before, now))
    is_same = abs(rate - rate_was) <= _SAME_PACE * rate_was
    paces = f"{format_duration(rate_was)} a token before, {format_duration(rate)} now"
    pace = f"tokens come as fast ({paces})" if is_same else paces
    gaps = f"gaps between chunks P50 {format_duration(before.gap_s)} -> {format_duration(now.gap_s)}"
    return ReportStreamUnit(
        lane=lane,
        code=ReasonCode.STREAM_UNIT,
        reason=f"{was:.1f} -> {other:.1f} tokens a chunk{by}; {gaps}; {pace}",
        noted={
            "tokens_per_chunk_before": round(was, 2),
            "tokens_per_chunk": round(other, 2),
            "gap_s_p50_before": round(before.gap_s, 4),
            "gap_s_p50": round(now.gap_s, 4),
            "engine_before": before.engine,
            "engine": now.engine,
            "since": since.isoformat(timespec="seconds"),
        },
    )

"""Finds a straggler: by how it streams, by its longest gaps, and by how many of what missed was there."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from fleetctl.core.diagnosis.findings import Cause, CauseFound
from fleetctl.core.diagnosis.serving import beside_peers
from fleetctl.model.reason import ReasonCode
from fleetctl.units import format_duration, format_fraction, format_ready

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fleetctl.core.diagnosis.evidence import LaneEvidence
    from fleetctl.model.journal import JournalEntry
    from fleetctl.model.request_trace import RequestTrace

_SHARE_MIN = 0.3  # of what missed
_STRAGGLES_BY = 1.6  # times the median of its peers; the gateway leaves one alone at about twice
_LATELY_BY = 2.0  # the same of few streams
_STREAMS_MIN = 5  # so many say how a replica streams
_ELSEWHERE = 0.2  # of its peers' streams
_CONCENTRATED, _RATE_TIMES = 0.5, 3.0  # half of what missed, at one where they miss three times as often as elsewhere
_CHANCE = 0.01  # that so many misses fall to one of them, were all alike
_LAST_MISSES = 10  # when one has become slow just now, they are there


def slow_replica(lane: LaneEvidence) -> tuple[str, CauseFound] | None:
    """Return the lane's straggler and what speaks for it. None: none is."""
    found = lane.events(ReasonCode.SLOW_REPLICA)
    if found:
        return found[-1].subject.name, _left_alone(lane, found[-1])
    return _slower_than_peers(lane) or _longer_gaps(lane) or _misses_at_one(lane)


def _left_alone(lane: LaneEvidence, entry: JournalEntry) -> CauseFound:
    return CauseFound(
        cause=Cause.SLOW_REPLICA,
        lane=lane.name,
        message=f"{entry.subject.name} was far slower than its peers, and is replaced",
        evidence=(entry.reason, format_ready(lane.status.ready, lane.status.wanted)),
        remedy=f"what its engine wrote: fleetctl logs {entry.subject.name}",
    )


def _straggler(lane: LaneEvidence, name: str, message: str, *evidence: str) -> tuple[str, CauseFound]:
    return name, CauseFound(
        cause=Cause.SLOW_REPLICA,
        lane=lane.name,
        message=message,
        evidence=evidence,
        remedy=f"fleetctl drain {name}",
        share=lane.share(trace for trace in lane.missed if trace.replica == name),
    )


def _streams(lane: LaneEvidence) -> dict[str, list[RequestTrace]]:
    """Return each replica's streams of when a peer served beside it, in the order they ended."""
    streams: dict[str, list[RequestTrace]] = defaultdict(list)
    for trace in beside_peers(lane, lane.requests):
        if trace.gap_s_mean is not None and not trace.continuations:
            streams[trace.replica].append(trace)
    return {name: traces for name, traces in streams.items() if len(traces) >= _STREAMS_MIN}


def _worst(figures: dict[str, float]) -> tuple[str, float]:
    """Return the replica with the highest figure, and the median of its peers'."""
    name = max(figures, key=lambda name: figures[name])
    return name, statistics.median(figure for other, figure in figures.items() if other != name)


def _slower_than_peers(lane: LaneEvidence) -> tuple[str, CauseFound] | None:
    streams = _streams(lane)
    if len(streams) < 2:
        return None
    # One that has just become slow is not so yet over all two minutes.
    for count, times in ((0, _STRAGGLES_BY), (_STREAMS_MIN, _LATELY_BY)):
        paces = {
            name: statistics.median(trace.gap_s_mean or 0.0 for trace in traces[-count:])
            for name, traces in streams.items()
        }
        slowest, peers_s = _worst(paces)
        through = [trace for trace in lane.missed if trace.replica == slowest]
        is_hurting = not lane.missed or lane.share(through) >= _SHARE_MIN
        if is_hurting and peers_s and paces[slowest] >= times * peers_s:
            number = count or len(streams[slowest])
            return _straggler(
                lane,
                slowest,
                f"{slowest} streams {paces[slowest] / peers_s:.1f} times as slowly as its peers",
                f"{slowest}: {format_duration(paces[slowest])} between tokens, its peers {format_duration(peers_s)}",
                f"over {'the last ' if count else ''}{number} of its requests in 2m",
                f"{len(through)} of its lane's last {len(lane.missed)} missed requests were there",
            )
    return None


def _longer_gaps(lane: LaneEvidence) -> tuple[str, CauseFound] | None:
    """Name one that halts now and then: its mean pace is little worse, its longest gaps are."""
    longest = {
        name: [trace.gap_s_max or 0.0 for trace in traces[-_STREAMS_MIN:]] for name, traces in _streams(lane).items()
    }
    if len(longest) < 2:
        return None
    gap_s = {name: statistics.median(gaps) for name, gaps in longest.items()}
    worst, peers_s = _worst(gap_s)
    limit_s = next((trace.gap_limit_s for trace in lane.missed if trace.gap_limit_s is not None), math.inf)
    through = [trace for trace in lane.missed if trace.replica == worst]
    peers = [gap >= limit_s for name, gaps in longest.items() if name != worst for gap in gaps]
    # Every one of its last there, and hardly one elsewhere: where all replicas have long gaps, none is the slow one.
    is_alone = min(longest[worst]) >= limit_s and sum(peers) <= _ELSEWHERE * len(peers)
    if not is_alone or gap_s[worst] < _LATELY_BY * peers_s or lane.share(through) < _SHARE_MIN:
        return None
    return _straggler(
        lane,
        worst,
        f"{worst} halts: its streams' longest gaps are {format_duration(gap_s[worst])}, its peers' {format_duration(peers_s)}",
        f"the median of the last {_STREAMS_MIN} requests of each; promised {format_duration(limit_s)}",
        f"{len(through)} of its lane's last {len(lane.missed)} missed requests were there",
    )


def _spans(lane: LaneEvidence) -> Iterator[tuple[Sequence[RequestTrace], Sequence[RequestTrace]]]:
    """Yield all that missed, then the last of them, each with the lane's requests since the first of these."""
    for missed in (lane.missed, lane.missed[-_LAST_MISSES:]):
        since = min((trace.at for trace in missed), default=lane.fleet.now)
        yield missed, [trace for trace in lane.requests if trace.at >= since]


def _misses_at_one(lane: LaneEvidence) -> tuple[str, CauseFound] | None:
    """Name a replica at which requests miss far more often than at its peers."""
    for missed, requests in _spans(lane):
        everywhere = Counter(trace.replica for trace in missed if trace.attempts)
        if not everywhere:
            continue
        worst = everywhere.most_common(1)[0][0]
        # A peer that did not serve yet when these missed is no evidence against the one that did.
        sent = Counter(trace.replica for trace in beside_peers(lane, requests, worst))
        at = Counter(trace.replica for trace in beside_peers(lane, missed, worst))
        count = at[worst]
        if len(sent) < 2 or at.total() < _STREAMS_MIN:
            continue
        of_all = sent[worst] / sent.total()
        elsewhere = at.total() - count
        rates = count / sent[worst], elsewhere / max(1, sent.total() - sent[worst])
        is_chance = len(sent) * _chance(at.total(), count, of_all) > _CHANCE
        if count < _CONCENTRATED * len(missed) or rates[0] < _RATE_TIMES * rates[1] or is_chance:
            continue
        return _straggler(
            lane,
            worst,
            f"{format_fraction(count / len(missed))} of its missed requests were at {worst}, and {format_fraction(of_all)} of all",
            f"{count} of {len(missed)} missed, {sent[worst]} of {sent.total()} sent since the first of them",
            f"{format_fraction(rates[0])} of its requests missed, {format_fraction(rates[1])} of its peers'",
        )
    return None


def _chance(number: int, count: int, share: float) -> float:
    """Return how likely it is that so many of a number fall to one that gets this share of all."""
    return sum(math.comb(number, k) * share**k * (1.0 - share) ** (number - k) for k in range(count, number + 1))

"""Causes that lie in how long answers get: few that take what all others need, and many that a bound cuts short."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.diagnosis.evidence import REQUESTS_S
from fleetctl.core.diagnosis.findings import Cause, CauseFound
from fleetctl.model.slo import UNEVEN
from fleetctl.units import format_fraction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleetctl.core.diagnosis.evidence import LaneEvidence
    from fleetctl.model.request_trace import RequestTrace, RunningAnswer

_SHARE_MIN = 0.3
_ANSWERS_COMPARED_MIN = 20
# An answer balloons that is so many times the median: 5 % of public conversations are over four times, .1 % over ten.
_LONG_TIMES = 10.0
_LONG_FEW, _LONG_TOKENS = 0.15, 0.4  # few answers, and so much of the tokens
_BALLOONS_COMPARED_MAX = 200
_CAPPED_SHARE = 0.2
_HURT = UNEVEN | {"ttft", "refused", "timeout"}
_STREAMS_S = timedelta(seconds=REQUESTS_S)


def length_causes(lane: LaneEvidence) -> Iterator[CauseFound]:
    """Yield what the length of the lane's answers did to it."""
    for find in (_ballooning, _capped):
        found = find(lane)
        if found is not None:
            yield found


def _generated_lately(lane: LaneEvidence) -> list[RequestTrace | RunningAnswer]:
    """Return its answers that ended lately, whenever they began, and those that have not: one that balloons may go on for long."""
    since = lane.fleet.now - _STREAMS_S
    ended = (
        trace
        for trace in lane.fleet.requests
        if trace.lane == lane.name and trace.output_tokens and trace.at + timedelta(seconds=trace.total_s) >= since
    )
    return [*ended, *(answer for answer in lane.fleet.running if answer.lane == lane.name)]


def _few(answers: Iterable[RequestTrace | RunningAnswer]) -> float:
    """Return how many answers that is in as much time as others took: one of ten minutes counts as a fifth in two."""
    return math.fsum(min(1.0, REQUESTS_S / answer.total_s) if answer.total_s else 1.0 for answer in answers)


def _ballooning(lane: LaneEvidence) -> CauseFound | None:
    """Name few answers far longer than the usual ones, beside which others miss."""
    answers = _generated_lately(lane)
    if len(answers) < _ANSWERS_COMPARED_MIN:
        return None
    usual = statistics.median(trace.output_tokens for trace in answers)
    long = [trace for trace in answers if trace.output_tokens > _LONG_TIMES * usual]
    share_of_tokens = sum(trace.output_tokens for trace in long) / sum(trace.output_tokens for trace in answers)
    if not long or _few(long) > _LONG_FEW * _few(answers) or share_of_tokens < _LONG_TOKENS:
        return None
    longest = sorted(long, key=lambda trace: -trace.output_tokens)[:_BALLOONS_COMPARED_MAX]
    hurt = [
        trace for trace in lane.missed if trace.verdict in _HURT and any(_is_beside(trace, each) for each in longest)
    ]
    if lane.share(hurt) < _SHARE_MIN:
        return None
    most, client = lane.spec.generation.max_tokens, Counter(trace.client for trace in long).most_common(1)[0]
    return CauseFound(
        cause=Cause.BALLOONING_ANSWERS,
        lane=lane.name,
        message=f"few answers balloon: {format_fraction(share_of_tokens)} of the output tokens are theirs; others miss beside them",
        evidence=(
            f"{len(long)} of {len(answers)} answers that ended in 2m, or have not yet, are over {_LONG_TIMES * usual:,.0f} tokens",
            f"the longest has {longest[0].output_tokens:,}, the median {usual:,.0f}",
            f"{len(hurt)} of {len(lane.missed)} missed requests came while one of them was generated where they went",
            f"{client[1]} of them are client {client[0]}'s",
        ),
        remedy=f"lanes.{lane.name}.generation.max_tokens, {f'which is {most:,},' if most else 'or a default_max_tokens,'} at what its "
        "answers need, and a max_duration; answers of their own lane: x-fleetctl-lane",
        share=lane.share(hurt),
    )


def _is_beside(trace: RequestTrace, other: RequestTrace | RunningAnswer) -> bool:
    """Whether a request came while another one was generated, at the replica it went to where it got to one."""
    if trace is other or not other.at <= trace.at <= other.at + timedelta(seconds=other.total_s):
        return False
    return not trace.replica or trace.replica == other.replica


def _capped(lane: LaneEvidence) -> CauseFound | None:
    """Name bounds that end many answers: they may be too low for what the lane is for."""
    answered = [trace for trace in lane.requests if trace.output_tokens or trace.bounded_by]
    capped = [trace for trace in answered if trace.bounded_by]
    if len(answered) < _ANSWERS_COMPARED_MIN or len(capped) < _CAPPED_SHARE * len(answered):
        return None
    by, count = Counter(trace.bounded_by for trace in capped).most_common(1)[0]
    client, of_client = Counter(trace.client for trace in capped).most_common(1)[0]
    bad = sum(trace.verdict == "capped" for trace in capped)
    counts = "and count as bad" if bad else "and count as any other"
    return CauseFound(
        cause=Cause.CAPPED_ANSWERS,
        lane=lane.name,
        message=f"{format_fraction(len(capped) / len(answered))} of its answers are ended by a bound of the server's, {counts}",
        evidence=(
            f"{len(capped)} of {len(answered)} answers in 2m, {count} of them by {by}",
            f"{of_client} of them are client {client}'s",
        ),
        remedy=f"lanes.{lane.name}.generation.{by}: higher, if its answers need that; else have the clients ask for less",
        share=bad / max(1, len(lane.missed)),
    )

"""Whether a finished request kept its lane's promise, and if not, how it failed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from fleetctl.core.slo.endings import COUNTED, MISSES, Counting, Ending
from fleetctl.model.slo import BreachKind, LaneSlo, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A lane's SLO as the per-request limits that breaches are counted against.

    A promise is per percentile, so the limit is the one at the highest percentile promised for its metric: the 1 % a
    P99 leaves outside is what the objective's budget pays for.
    """

    ttft_s: float | None
    itl_s: float | None
    jitter_share: float  # of a response's gaps that may be over itl_s
    queue_wait_s: float | None
    total_s: float | None
    stream_gap_s: float | None
    stream_gap_share: float  # of a response's gaps between chunks that may be over stream_gap_s
    may_stall: bool
    tokens_per_chunk: float | None

    @classmethod
    def of(cls, slo: LaneSlo) -> Limits:
        """Return the limits a lane's promises imply."""
        itl, gap = slo.strictest(Metric.ITL), slo.strictest(Metric.STREAM_GAP)
        return cls(
            ttft_s=_limit(slo, Metric.TTFT),
            itl_s=itl.limit_s if itl else None,
            jitter_share=1.0 - itl.percentile if itl else 0.0,
            queue_wait_s=_limit(slo, Metric.QUEUE_WAIT),
            total_s=min(
                (limit for m in (Metric.E2E, Metric.COMPLETION) if (limit := _limit(slo, m)) is not None),
                default=None,
            ),
            stream_gap_s=gap.limit_s if gap else None,
            stream_gap_share=1.0 - gap.percentile if gap else 0.0,
            may_stall=slo.strictest(Metric.STALL_RATE) is None,
            tokens_per_chunk=_limit(slo, Metric.TOKENS_PER_CHUNK),
        )


# No cycle passes through one, and there is one for every request: not for the garbage collector to track.
class RequestMeasurements(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What was measured of one request."""

    ending: Ending
    total_s: float
    streamed: bool = True  # an answer sent whole has no first token and no gaps to judge
    ttft_s: float | None = None  # None: no content ever came
    queue_wait_s: float = 0.0
    gaps: int = 0
    gaps_over: int = 0  # longer than Limits.itl_s
    chunks: int = 0  # that left for the client, of an answer that is whole
    stalls: int = 0  # gaps between them that were stalls
    stream_gaps: int = 0  # between chunks, also of an answer that is not whole
    stream_gaps_over: int = 0  # longer than Limits.stream_gap_s
    tokens: int = 0  # in its chunks


class Uncounted(StrEnum):
    """Why a finished request is neither good nor a breach."""

    REJECTED = "rejected"
    CANCELLED = "cancelled"


def classify(measured: RequestMeasurements, limits: Limits) -> BreachKind | Uncounted | None:
    """Return how a request breached, the gravest kind first; None: it was good.

    A client that left before the first token counts as a TTFT breach once the limit had passed: else those who give up
    waiting would make the lane look better. One that ran past its E2E or COMPLETION limit counts as a timeout.
    """
    counting = COUNTED[measured.ending]
    if counting is Counting.MISS:
        return MISSES[measured.ending]
    if counting is Counting.NOT_OFFERED:
        return Uncounted.REJECTED
    late = _late_kind(measured, limits)
    if late is not None:
        return late
    return Uncounted.CANCELLED if counting is Counting.UNLESS_LATE else None


def _late_kind(measured: RequestMeasurements, limits: Limits) -> BreachKind | None:
    """Return which of its limits a request has passed, the gravest first. None: none."""
    if limits.total_s is not None and measured.total_s > limits.total_s:
        return BreachKind.TIMEOUT
    if limits.queue_wait_s is not None and measured.queue_wait_s > limits.queue_wait_s:
        return BreachKind.TTFT
    if not measured.streamed:
        return None
    waited_s = measured.total_s if measured.ttft_s is None else measured.ttft_s
    if limits.ttft_s is not None and waited_s > limits.ttft_s:
        return BreachKind.TTFT
    # The epsilon: 1 - 0.9 is a little less than 0.1 in binary, and exactly the allowed share is allowed.
    if limits.itl_s is not None and measured.gaps_over > limits.jitter_share * measured.gaps + 1e-9:
        return BreachKind.ITL
    return _uneven_kind(measured, limits)


def _uneven_kind(measured: RequestMeasurements, limits: Limits) -> BreachKind | None:
    """Return how the chunks of an answer, other than its tokens, broke a promise. None: they kept it."""
    if not limits.may_stall and measured.stalls:
        return BreachKind.STALL
    if measured.stream_gaps_over > limits.stream_gap_share * measured.stream_gaps + 1e-9:
        return BreachKind.STREAM_GAP
    unit = limits.tokens_per_chunk
    return BreachKind.TOKENS_PER_CHUNK if unit is not None and measured.tokens > unit * measured.chunks > 0 else None


def _limit(slo: LaneSlo, metric: Metric) -> float | None:
    target = slo.strictest(metric)
    return target.limit_s if target else None

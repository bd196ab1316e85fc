"""What a lane promises, and how well a window kept it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

TAIL_SAMPLES_MIN = 100  # below that a P99 is only the maximum by another name
_ROUNDING = 1e-6  # 0.29 of 100 is a little less than 29 in binary


class Metric(StrEnum):
    """What users feel of a lane. Seconds, unless said otherwise, measured at the gateway."""

    TTFT = "ttft"  # submission -> first content token
    ITL = "itl"  # gap between tokens of one response
    E2E = "e2e"  # submission -> last token
    QUEUE_WAIT = "queue_wait"  # submission -> dispatched to a replica
    COMPLETION = "completion"  # a batch job's request, submission -> done
    STREAM_GAP = "stream_gap"  # between two chunks of one response, as they leave for the client
    STALL_RATE = "stall_rate"  # the share of streamed answers with a stall; docs/slo.md says which gap is one
    TOKENS_PER_CHUNK = "tokens_per_chunk"  # tokens, the mean of one answer


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTarget:
    """One promise: `percentile` (0-1) of `metric` stays at or under `limit_s`, which is in the metric's own unit.

    Of STALL_RATE the limit is the share of answers that may stall, and the percentile the rest of them.
    """

    metric: Metric
    percentile: float
    limit_s: float

    @property
    def name(self) -> str:
        """What people call it: "ttft P99"."""
        if self.metric is Metric.STALL_RATE:
            return self.metric.value
        return f"{self.metric} P{self.percentile * 100:g}"

    @property
    def key(self) -> tuple[str, ...]:
        """Where a lane's section of the profile has it: ("slo", "ttft", "p99")."""
        if self.metric is Metric.STALL_RATE:
            return ("slo", self.metric.value)
        return ("slo", self.metric.value, f"p{self.percentile * 100:g}")


class TargetCount(msgspec.Struct, frozen=True, kw_only=True):
    """A target beside what a window holds of its metric."""

    target: LatencyTarget
    samples: int = 0
    over: int = 0  # samples longer than the limit; of STALL_RATE answers with a stall
    measured_s: float = 0.0  # at the target's percentile, in the metric's unit; 0 without samples


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSlo:
    """A lane's promises."""

    targets: tuple[LatencyTarget, ...]
    shed: float = 0.0  # the share of its requests that may be refused: those are good

    def limit_s(self, metric: Metric, percentile: float = 0.99) -> float | None:
        """Return the limit promised at exactly this percentile, or None."""
        for target in self.targets:
            if target.metric is metric and abs(target.percentile - percentile) < 1e-9:
                return target.limit_s
        return None

    def strictest(self, metric: Metric) -> LatencyTarget | None:
        """Return the promise on this metric at its highest percentile, or None."""
        found = [t for t in self.targets if t.metric is metric]
        return max(found, key=lambda t: t.percentile) if found else None


def covered_refusals(refused: int, *, allowance: float) -> int:
    """Return how many refusals are good, as a shed allowance covers them; the only rule of it.

    `allowance` is the share that may be refused times the requests that count in the window looked at, refusals among them. Of a
    request half a one covers nothing, so that few requests never make a refusal good.
    """
    return min(refused, math.floor(allowance + _ROUNDING))


class Validity(StrEnum):
    """Whether a signal may be decided on; anything but OK is shown, never guessed around."""

    OK = "ok"
    FEW = "few"  # fewer samples than the percentile needs
    STALE = "stale"  # the source stopped updating
    INVALID = "invalid"  # NaN, negative, or unparsable
    NONE = "none"  # zero traffic: no samples at all


class BreachKind(StrEnum):
    """How a request failed its lane's promise. Counted separately; a refusal is a miss like any other."""

    TTFT = "ttft"
    ITL = "itl"
    STREAM_GAP = "stream_gap"  # too many of its gaps between chunks were too long
    STALL = "stall"  # it stalled, where a stall rate is promised
    TOKENS_PER_CHUNK = "tokens_per_chunk"  # it came in too large pieces
    INCOMPLETE = "incomplete"
    TIMEOUT = "timeout"
    ERROR = "error"
    REFUSED = "refused"
    CAPPED = "capped"  # ended by a bound of the server's, in a lane that counts that as bad


def less_covered(kinds: Mapping[str, int], covered: int) -> dict[str, int]:
    """Return misses by BreachKind without the refusals that are covered."""
    if not covered:
        return dict(kinds)
    left = {**kinds, BreachKind.REFUSED.value: kinds.get(BreachKind.REFUSED, 0) - covered}
    return {kind: count for kind, count in left.items() if count}


# Misses by gaps that were too long: an engine's steps, not its queue.
UNEVEN = frozenset((BreachKind.ITL, BreachKind.STREAM_GAP, BreachKind.STALL))


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of one metric over one window, in seconds; NaN never appears: `count` 0 means no figures."""

    count: int = 0
    p50_s: float = 0.0
    p95_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0

    def at_s(self, percentile: float) -> float:
        """Return the kept percentile nearest above this one: a promise is never measured by a milder figure."""
        if percentile <= 0.5:
            return self.p50_s
        return self.p95_s if percentile <= 0.95 else self.p99_s

    @property
    def validity(self) -> Validity:
        """Return OK from 100 samples on: below that a P99 is only the maximum by another name."""
        if self.count == 0:
            return Validity.NONE
        return Validity.OK if self.count >= TAIL_SAMPLES_MIN else Validity.FEW

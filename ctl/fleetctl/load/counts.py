"""Exchanges added up by lane, in bounded memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.slo.breach import Limits, RequestMeasurements, classify
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.sketch import QuantileSketch
from fleetctl.load.exchange import ClientExchange, FailureKind
from fleetctl.load.report import LaneFigures

if TYPE_CHECKING:
    from fleetctl.model.slo import LaneSlo

UNNAMED_LANE = "-"  # no answer named its lane
_LANES_MAX = 64  # lane names come from the other side


class LaneCounts:
    """One lane's sums."""

    def __init__(self, slo: LaneSlo | None) -> None:
        self.limits = Limits.of(slo) if slo else None
        self.requests = self.ok = self.good = self.refused = self.refused_with_retry_after = self.unavailable = 0
        self.prompt_tokens = self.output_tokens = 0
        self.failed: Counter[str] = Counter()
        self.breached: Counter[str] = Counter()
        self.ttft, self.itl, self.e2e = QuantileSketch(), QuantileSketch(), QuantileSketch()

    def add(self, exchange: ClientExchange) -> None:
        """Count one exchange."""
        self.requests += 1
        if exchange.status == 429:
            self.refused += 1
            self.refused_with_retry_after += exchange.has_retry_after
            return
        if exchange.status == 503:
            self.unavailable += 1
        elif exchange.failure:
            self.failed[exchange.failure] += 1
        self._measure(exchange)
        self._judge(exchange)

    def merge(self, other: LaneCounts) -> None:
        """Add everything another count of this lane holds."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failed.update(other.failed)
        self.breached.update(other.breached)
        for sketch in ("ttft", "itl", "e2e"):
            getattr(self, sketch).merge(getattr(other, sketch))

    def figures(self, lane: str, *, duration_s: float, elapsed_s: float) -> LaneFigures:
        """Return the lane's figures: good requests per second of arrivals, tokens per second until the last answer."""
        judged = self.requests - self.refused
        return LaneFigures(
            lane=lane,
            requests=self.requests,
            ok=self.ok,
            good=self.good,
            refused=self.refused,
            refused_with_retry_after=self.refused_with_retry_after,
            unavailable=self.unavailable,
            failed=dict(sorted(self.failed.items())),
            breached=dict(sorted(self.breached.items())),
            attainment=self.good / judged if self.limits and judged else None,
            goodput_rps=self.good / duration_s if duration_s > 0 else 0.0,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            output_tokens_per_s=self.output_tokens / elapsed_s if elapsed_s > 0 else 0.0,
            ttft=self.ttft.summary(),
            itl=self.itl.summary(),
            e2e=self.e2e.summary(),
        )

    def _measure(self, exchange: ClientExchange) -> None:
        self.prompt_tokens += exchange.prompt_tokens
        self.output_tokens += exchange.output_tokens
        if exchange.ttft_s is not None:
            self.ttft.add(max(0.0, exchange.ttft_s))
        for gap_s in exchange.gaps_s:
            self.itl.add(max(0.0, gap_s))
        if exchange.is_ok:
            self.ok += 1
            self.e2e.add(max(0.0, exchange.e2e_s))

    def _judge(self, exchange: ClientExchange) -> None:
        if self.limits is None:
            self.good += exchange.is_ok
            return
        itl_s = self.limits.itl_s
        breach = classify(
            RequestMeasurements(
                ending=_ending(exchange),
                total_s=exchange.e2e_s,
                streamed=exchange.streamed,
                ttft_s=exchange.ttft_s,
                gaps=len(exchange.gaps_s),
                gaps_over=sum(gap_s > itl_s for gap_s in exchange.gaps_s) if itl_s is not None else 0,
            ),
            self.limits,
        )
        if breach is None:
            self.good += 1
        else:
            self.breached[breach.value] += 1


_SUMS = (
    "requests",
    "ok",
    "good",
    "refused",
    "refused_with_retry_after",
    "unavailable",
    "prompt_tokens",
    "output_tokens",
)


class LoadCounts:
    """Every lane's sums."""

    def __init__(self, slos: dict[str, LaneSlo]) -> None:
        self._slos = slos
        self._lanes: dict[str, LaneCounts] = {}

    def add(self, exchange: ClientExchange) -> None:
        """Count one exchange under the lane its answer named."""
        self._lane(exchange.lane or UNNAMED_LANE).add(exchange)

    def merge(self, other: LoadCounts) -> None:
        """Add everything another count holds."""
        for name, lane in other._lanes.items():
            self._lane(name).merge(lane)

    def lanes(self, *, duration_s: float, elapsed_s: float) -> tuple[LaneFigures, ...]:
        """Return the lanes' figures: those with an SLO in their order, then the others by name."""
        known = [name for name in self._slos if name in self._lanes]
        names = known + sorted(name for name in self._lanes if name not in self._slos)
        return tuple(self._lanes[name].figures(name, duration_s=duration_s, elapsed_s=elapsed_s) for name in names)

    def total(self, *, duration_s: float, elapsed_s: float) -> LaneFigures:
        """Return all lanes as one; attainment counts the lanes that have an SLO."""
        whole = LaneCounts(None)
        for lane in self._lanes.values():
            whole.merge(lane)
        figures = whole.figures("total", duration_s=duration_s, elapsed_s=elapsed_s)
        judged = [lane for lane in self._lanes.values() if lane.limits]
        finished = sum(lane.requests - lane.refused for lane in judged)
        return replace(figures, attainment=sum(lane.good for lane in judged) / finished if finished else None)

    def _lane(self, name: str) -> LaneCounts:
        if name not in self._lanes and len(self._lanes) >= _LANES_MAX:
            name = UNNAMED_LANE
        if name not in self._lanes:
            self._lanes[name] = LaneCounts(self._slos.get(name))
        return self._lanes[name]


def _ending(exchange: ClientExchange) -> Ending:
    if exchange.is_ok:
        return Ending.COMPLETE
    if exchange.failure == FailureKind.TIMEOUT:
        return Ending.TIMEOUT
    if exchange.failure in (FailureKind.TRUNCATED, FailureKind.ERROR_EVENT):
        return Ending.INCOMPLETE
    return Ending.REJECTED if 400 <= exchange.status < 500 else Ending.ERROR

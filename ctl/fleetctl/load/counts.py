"""Exchanges added up by lane, in bounded memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.slo.lane_stats import LaneStats
from fleetctl.core.slo.sketch import QuantileSketch
from fleetctl.load.accounts import UNNAMED_LANE
from fleetctl.load.report import LaneFigures
from fleetctl.model.verdict import SloVerdict

if TYPE_CHECKING:
    from fleetctl.load.accounts import ClientAccounts
    from fleetctl.load.exchange import ClientExchange

_MESSAGES_MAX = 16  # of one lane: kinds of failure are few, statuses come from the other side


class LaneCounts:
    """One lane's sums."""

    def __init__(self) -> None:
        self.requests = self.ok = self.refused = self.refused_with_retry_after = self.unavailable = self.rejected = 0
        self.cut_short = 0
        self.prompt_tokens = self.output_tokens = 0
        self.failed: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.messages: dict[str, str] = {}
        self.ttft = QuantileSketch()

    def add(self, exchange: ClientExchange) -> None:
        """Count one exchange."""
        self.requests += 1
        self.ok += exchange.is_ok
        self.prompt_tokens += exchange.prompt_tokens
        self.output_tokens += exchange.output_tokens
        if exchange.ttft_s is not None:
            self.ttft.add(max(0.0, exchange.ttft_s))
        if exchange.reason:
            self.refusals[exchange.reason] += 1
        if exchange.status == 429:
            self.refused += 1
            self.refused_with_retry_after += exchange.has_retry_after
        elif exchange.status == 503:
            self.unavailable += 1
        elif exchange.is_cut_short:
            self.cut_short += 1
            return
        elif exchange.failure:
            self.failed[exchange.failure] += 1
            self.rejected += 400 <= exchange.status < 500
        if not exchange.is_ok and len(self.messages) < _MESSAGES_MAX:
            self.messages.setdefault(exchange.failure or f"http-{exchange.status}", exchange.message)

    def merge(self, other: LaneCounts) -> None:
        """Add everything another count holds."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failed.update(other.failed)
        self.refusals.update(other.refusals)
        self.messages = {**other.messages, **self.messages}
        self.ttft.merge(other.ttft)

    def figures(self, lane: str, stats: LaneStats, verdict: SloVerdict, *, elapsed_s: float) -> LaneFigures:
        """Return the lane's figures; both rates are over the same time."""
        good = stats.good if verdict.findings else self.ok
        return LaneFigures(
            lane=lane,
            requests=self.requests,
            ok=self.ok,
            good=verdict.good if verdict.findings else good,
            refused=self.refused,
            refused_with_retry_after=self.refused_with_retry_after,
            unavailable=self.unavailable,
            rejected=self.rejected,
            cut_short=self.cut_short,
            failed=dict(sorted(self.failed.items())),
            refusals=dict(self.refusals.most_common()),
            messages=dict(sorted(self.messages.items())),
            breached=dict(sorted(verdict.findings[0].kinds.items())) if verdict.findings else {},
            attainment=verdict.attained,
            goodput_rps=good / elapsed_s if elapsed_s > 0 else 0.0,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            output_tokens_per_s=self.output_tokens / elapsed_s if elapsed_s > 0 else 0.0,
            ttft=(stats.ttft if stats.ttft.count else self.ttft).summary(),
            itl=stats.itl.summary(),
            e2e=stats.e2e.summary(),
            streams=stats.streams.figures(stats.stream_gaps().summary()),
            verdict=verdict,
        )


_SUMS = (
    "requests", "ok", "refused", "refused_with_retry_after", "unavailable", "rejected", "cut_short", "prompt_tokens",
    "output_tokens",
)  # fmt: skip


class LoadCounts:
    """Every lane's sums."""

    def __init__(self, order: tuple[str, ...] = ()) -> None:
        self._order = order
        self._lanes: dict[str, LaneCounts] = {}

    def add(self, lane: str, exchange: ClientExchange) -> None:
        """Count one exchange under a lane."""
        self._lanes.setdefault(lane or UNNAMED_LANE, LaneCounts()).add(exchange)

    def merge(self, other: LoadCounts) -> None:
        """Add everything another count holds."""
        for name, lane in other._lanes.items():
            self._lanes.setdefault(name, LaneCounts()).merge(lane)

    def interval(self, verdicts: dict[str, SloVerdict], *, interval_s: float) -> tuple[LaneFigures, ...]:
        """Return what the lanes counted here, beside their verdicts now; a lane in breach may have nothing to count."""
        for name, verdict in verdicts.items():
            if verdict.breach:
                self._lanes.setdefault(name, LaneCounts())
        empty = LaneStats()
        return tuple(
            self._lanes[name].figures(name, empty, verdicts.get(name, SloVerdict()), elapsed_s=interval_s)
            for name in self._names()
        )

    def lanes(
        self, accounts: ClientAccounts, *, now_s: float, elapsed_s: float, duration_s: float
    ) -> tuple[LaneFigures, ...]:
        """Return the lanes' figures: those with an SLO in their order, then the others by name.

        Rates are over `elapsed_s`; requests arrived for `duration_s`.
        """
        found = []
        for name in self._names():
            stats, verdict = accounts.stats(name, now_s), accounts.whole(name, now_s)
            figures = self._lanes[name].figures(name, stats, verdict, elapsed_s=elapsed_s)
            found.append(replace(figures, arrivals=accounts.burst(name, duration_s)))
        return tuple(found)

    def total(self, accounts: ClientAccounts, *, now_s: float, elapsed_s: float, duration_s: float) -> LaneFigures:
        """Return all lanes as one, those that no answer named among them."""
        whole = LaneCounts()
        for lane in self._lanes.values():
            whole.merge(lane)
        stats, verdict = accounts.total(now_s)
        figures = whole.figures("total", stats, verdict, elapsed_s=elapsed_s)
        return replace(figures, arrivals=accounts.total_burst(duration_s))

    def _names(self) -> list[str]:
        known = [name for name in self._order if name in self._lanes]
        return known + sorted(name for name in self._lanes if name not in self._order)

"""What a tier's requests came to in one lane: counted once as they arrive, and once as they end."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from fleetctl.core.slo.sketch import QuantileSketch, SketchReading
from fleetctl.core.slo.windows import SlidingWindows
from fleetctl.model.tiers import TierWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.slo.stopwatch import RequestStopwatch


class TierStats:
    """Counts; merges; becomes a TierWindow."""

    __slots__ = ("breached", "good", "missed", "offered", "refused", "served_tokens", "ttft")

    def __init__(self) -> None:
        self.offered = 0
        self.good = 0
        self.missed = 0
        self.served_tokens = 0
        self.refused: defaultdict[str, int] = defaultdict(int)
        self.breached: defaultdict[str, int] = defaultdict(int)  # by BreachKind
        self.ttft = QuantileSketch()

    def merge(self, other: TierStats) -> None:
        """Add everything `other` counted."""
        self.offered += other.offered
        self.good += other.good
        self.missed += other.missed
        self.served_tokens += other.served_tokens
        for reason, count in other.refused.items():
            self.refused[reason] += count
        for kind, count in other.breached.items():
            self.breached[kind] += count
        self.ttft.merge(other.ttft)

    def remove(self, gone: Sequence[TierStats], rest: Sequence[TierStats]) -> None:
        """Take out what `gone` had added; `rest` is all else that was merged into this one."""
        for each in gone:
            self.offered -= each.offered
            self.good -= each.good
            self.missed -= each.missed
            self.served_tokens -= each.served_tokens
            _subtract(self.refused, each.refused)
            _subtract(self.breached, each.breached)
        self.ttft.remove((each.ttft for each in gone), (each.ttft for each in rest))

    def window(self, seconds: float) -> TierWindow:
        """Return these counts as the figures of a window of this length."""
        return TierWindow(
            seconds=seconds,
            offered=self.offered,
            good=self.good,
            missed=self.missed,
            refused=dict(sorted(self.refused.items())),
            breached=dict(sorted(self.breached.items())),
            served_tokens=self.served_tokens,
            ttft=SketchReading(self.ttft).summary(),
        )


def _subtract(counts: defaultdict[str, int], gone: dict[str, int]) -> None:
    for name, count in gone.items():
        counts[name] -= count
        if not counts[name]:
            del counts[name]


class TierAccounts:
    """A tier's figures in sliding windows."""

    __slots__ = ("_windows",)

    def __init__(self, now_s: float) -> None:
        self._windows = SlidingWindows(TierStats, now_s=now_s)

    def offered(self, now_s: float) -> None:
        """Count an arrival."""
        self._windows.open_cell(now_s).offered += 1

    def ended(self, now_s: float, stopwatch: RequestStopwatch, *, refusal: str, served_tokens: int) -> None:
        """Count a request that is over, by the verdict of its stopwatch."""
        cell = self._windows.open_cell(now_s)
        cell.good += stopwatch.is_good
        if stopwatch.breach is not None:
            cell.missed += 1
            cell.breached[stopwatch.breach.value] += 1
        cell.served_tokens += served_tokens
        if refusal:
            cell.refused[refusal] += 1
        if stopwatch.ttft_s is not None:
            cell.ttft.add(max(0.0, stopwatch.ttft_s))

    def lifetime(self) -> TierStats:
        """Return the sums since the start, not to be changed."""
        return self._windows.lifetime()

    def windows(self, now_s: float) -> tuple[TierWindow, ...]:
        """Return every window, shortest first."""
        return tuple(stats.window(seconds) for seconds, stats in self._windows.sums(now_s))

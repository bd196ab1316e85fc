"""What is counted of how evenly answers stream, and which gap is a stall."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.slo.sketch import QuantileSketch, SketchReading
from fleetctl.model.stream import StreamFigures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleetctl.model.slo import Quantiles

# Readers go through four or five words a second: half a second without one is a pause whatever the engine's pace is.
STALL_S = 0.5
# A tenth of a second is the longest that is seen as no interruption (Miller 1968; Nielsen, Usability Engineering, 1993), so
# that ten times the pace of an engine with gaps of 2 ms is none either.
STALL_S_MIN = 0.1
STALL_MEDIANS = 10.0
# Of fewer gaps the median may be one prompt's that shared their steps.
_MEDIAN_GAPS_MIN = 100
# A replica's figures are of its last half to one minute.
_CELL_S = 30.0
_FIGURES_S = 5.0


def stall_limit_s(median_gap_s: float | None) -> float:
    """Return the gap beyond which an answer stalls, where the lane's median gap is so long. None: it is not known yet."""
    if median_gap_s is None:
        return STALL_S
    return min(STALL_S, max(STALL_S_MIN, STALL_MEDIANS * median_gap_s))


class StreamCounts:
    """Answers that ended, by what left of them; merges."""

    __slots__ = ("answers", "chunks", "stalled_answers", "stalls", "tokens")

    def __init__(self) -> None:
        self.answers = 0
        self.stalled_answers = 0
        self.stalls = 0
        self.chunks = 0
        self.tokens = 0

    def ended(self, chunks: int, tokens: int, stalls: int) -> None:
        """Count an answer. No chunks: it was cut short, and its engine has not said how many tokens they had."""
        self.answers += 1
        if stalls:
            self.stalled_answers += 1
            self.stalls += stalls
        if chunks:
            self.chunks += chunks
            self.tokens += tokens

    def merge(self, other: StreamCounts) -> None:
        """Add everything `other` counted."""
        if other.answers:
            self.answers += other.answers
            self.stalled_answers += other.stalled_answers
            self.stalls += other.stalls
            self.chunks += other.chunks
            self.tokens += other.tokens

    def beside(self, other: StreamCounts) -> StreamCounts:
        """Return everything that both counted."""
        both = StreamCounts()
        both.merge(self)
        both.merge(other)
        return both

    def remove(self, gone: Iterable[StreamCounts]) -> None:
        """Take out what `gone` had added."""
        for each in gone:
            self.answers -= each.answers
            self.stalled_answers -= each.stalled_answers
            self.stalls -= each.stalls
            self.chunks -= each.chunks
            self.tokens -= each.tokens

    def figures(self, gap: Quantiles) -> StreamFigures:
        """Return these counts as figures, beside the gaps of the same time."""
        return StreamFigures.of(
            gap,
            answers=self.answers,
            stalled_answers=self.stalled_answers,
            stalls=self.stalls,
            chunks=self.chunks,
            tokens=self.tokens,
        )


class _Cell:
    __slots__ = ("counts", "gap")

    def __init__(self) -> None:
        self.gap = QuantileSketch()
        self.counts = StreamCounts()


class ReplicaStreams:
    """What leaves for one lane's clients of what one replica answers: of its last 30 to 60 seconds, and since it began.

    Streams note their gaps in `gaps_s`, a hundred thousand a second; `fold` does the rest.
    """

    __slots__ = (
        "_before", "_cell_ends_s", "_earlier", "_now", "figures_until_s", "gaps_s", "latest", "paced_gaps_s", "used_s",
    )  # fmt: skip

    def __init__(self, now_s: float) -> None:
        self.gaps_s: list[float] = []
        self.paced_gaps_s: list[float] = []  # those of chunks that the gateway held back
        self.used_s = now_s  # when a request was last sent there, or ended
        self._before, self._now = _Cell(), _Cell()
        self._earlier = StreamCounts()  # of all cells that are over
        self._cell_ends_s = now_s + _CELL_S
        self.latest = StreamFigures()  # what `figures` returned last, and returns again until then
        self.figures_until_s = now_s

    def fold(self, now_s: float, noted_s: list[float]) -> QuantileSketch:
        """Return the gaps noted in one of its lists since the last call, and forget them."""
        gap = QuantileSketch()
        add = gap.add
        for gap_s in noted_s:
            add(gap_s)
        noted_s.clear()
        self.used_s = now_s
        self._open_cell(now_s).gap.merge(gap)
        return gap

    def ended(self, now_s: float, chunks: int, tokens: int, stalls: int) -> None:
        """Count an answer that ended here."""
        self.used_s = now_s
        self._open_cell(now_s).counts.ended(chunks, tokens, stalls)

    def total(self) -> StreamCounts:
        """Return everything counted since it began."""
        whole = StreamCounts()
        whole.merge(self._earlier)
        whole.merge(self._now.counts)
        return whole

    def figures(self, now_s: float) -> StreamFigures:
        """Return its figures of late, some five seconds old at most: of a thousand replicas they take 20 ms."""
        if now_s < self.figures_until_s:
            return self.latest
        now, before = self._open_cell(now_s), self._before
        gap = SketchReading(now.gap, before.gap)
        counts = now.counts.beside(before.counts) if before.counts.answers else now.counts
        self.latest = counts.figures(gap.summary())
        # Not all of a fleet's in one moment; by something that a simulation repeats.
        self.figures_until_s = now_s + _FIGURES_S * (0.5 + 0.5 * (gap.count & 15) / 15)
        return self.latest

    def _open_cell(self, now_s: float) -> _Cell:
        if now_s >= self._cell_ends_s:
            self._before = self._now if now_s < self._cell_ends_s + _CELL_S else _Cell()
            self._earlier.merge(self._now.counts)
            self._now = _Cell()
            self._cell_ends_s = now_s + _CELL_S
        return self._now


def median_gap_s(gaps: SketchReading) -> float | None:
    """Return the median of a lane's latest gaps. None: there are too few of them."""
    return gaps.quantile(0.5) if gaps.count >= _MEDIAN_GAPS_MIN else None


def replica_figures(streams: Mapping[str, ReplicaStreams], now_s: float) -> dict[str, StreamFigures]:
    """Return how evenly answers of each replica have streamed of late, where there was any."""
    found = {
        name: each.latest if now_s < each.figures_until_s else each.figures(now_s)  # most are not due: spared a call
        for name, each in streams.items()
        if name
    }
    return {name: each for name, each in found.items() if each.answers or each.gap.count}

"""What is counted of a lane over a time: requests by outcome, tokens, and the four latencies."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from fleetctl.core.slo.sketch import QuantileSketch, SketchReading
from fleetctl.core.slo.streams import StreamCounts
from fleetctl.model.gateway import LaneWindow
from fleetctl.model.slo import BreachKind, Metric, TargetCount, covered_refusals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.slo import LaneSlo, LatencyTarget


class LaneStats:
    """Counts; merges; becomes a LaneWindow."""

    __slots__ = (
        "breached", "dispatched", "e2e", "finished", "finished_output_tokens", "good", "itl", "looped", "offered",
        "output_tokens", "paced_gap", "paced_itl", "preempted", "prefix_tokens_lost", "prefixes_lost", "prompt_tokens", "queue_wait", "shed", "streams", "together", "ttft", "unit",
    )  # fmt: skip

    def __init__(self) -> None:
        self.offered = 0
        self.dispatched = 0
        self.finished = 0
        self.good = 0
        self.looped = 0
        self.preempted = self.prefixes_lost = self.prefix_tokens_lost = 0
        # Not Counters: two are made for every window of every snapshot, and one of those takes a microsecond.
        self.breached: defaultdict[str, int] = defaultdict(int)
        self.shed: defaultdict[str, int] = defaultdict(int)
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.finished_output_tokens = 0
        self.ttft = QuantileSketch()
        self.itl = QuantileSketch()
        # Of answers whose chunks are held back: the gaps between their tokens as they come, and between their chunks.
        self.paced_itl = QuantileSketch()
        self.paced_gap = QuantileSketch()
        self.together = 0  # of the gaps, those of 0 before tokens that left with the one before
        self.e2e = QuantileSketch()
        self.queue_wait = QuantileSketch()
        self.streams = StreamCounts()
        self.unit = QuantileSketch()  # tokens a chunk, by answer; filled where they are promised

    def merge(self, other: LaneStats) -> None:
        """Add everything `other` counted."""
        self.offered += other.offered
        self.dispatched += other.dispatched
        self.finished += other.finished
        self.good += other.good
        self.looped += other.looped
        if other.preempted or other.prefixes_lost:
            self.preempted += other.preempted
            self.prefixes_lost += other.prefixes_lost
            self.prefix_tokens_lost += other.prefix_tokens_lost
        if other.breached:
            _add(self.breached, other.breached)
        if other.shed:
            _add(self.shed, other.shed)
        self.prompt_tokens += other.prompt_tokens
        self.output_tokens += other.output_tokens
        self.finished_output_tokens += other.finished_output_tokens
        self.together += other.together
        if other.streams.answers:
            self.streams.merge(other.streams)
        self._merge_sketches(other)

    def _merge_sketches(self, other: LaneStats) -> None:
        """Add what `other` measured; most have measured nothing of some of these, and a window is merged from dozens of them."""
        if other.itl.count:
            self.itl.merge(other.itl)
        if other.queue_wait.count:
            self.queue_wait.merge(other.queue_wait)
        if other.ttft.count:
            self.ttft.merge(other.ttft)
        if other.e2e.count:
            self.e2e.merge(other.e2e)
        if other.paced_itl.count or other.paced_gap.count:
            self.paced_itl.merge(other.paced_itl)
            self.paced_gap.merge(other.paced_gap)
        if other.unit.count:
            self.unit.merge(other.unit)

    def remove(self, gone: Sequence[LaneStats], rest: Sequence[LaneStats]) -> None:
        """Take out what `gone` had added; `rest` is all else that was merged into this one."""
        for each in gone:
            self.offered -= each.offered
            self.dispatched -= each.dispatched
            self.finished -= each.finished
            self.good -= each.good
            self.looped -= each.looped
            self.preempted -= each.preempted
            self.prefixes_lost -= each.prefixes_lost
            self.prefix_tokens_lost -= each.prefix_tokens_lost
            _subtract(self.breached, each.breached)
            _subtract(self.shed, each.shed)
            self.prompt_tokens -= each.prompt_tokens
            self.output_tokens -= each.output_tokens
            self.finished_output_tokens -= each.finished_output_tokens
            self.together -= each.together
        self.streams.remove([each.streams for each in gone])
        self.ttft.remove((each.ttft for each in gone), (each.ttft for each in rest))
        self.itl.remove((each.itl for each in gone), (each.itl for each in rest))
        self.e2e.remove((each.e2e for each in gone), (each.e2e for each in rest))
        self.queue_wait.remove((each.queue_wait for each in gone), (each.queue_wait for each in rest))
        self.paced_itl.remove((each.paced_itl for each in gone), (each.paced_itl for each in rest))
        self.paced_gap.remove((each.paced_gap for each in gone), (each.paced_gap for each in rest))
        self.unit.remove((each.unit for each in gone), (each.unit for each in rest))

    def stream_gaps(self, more: LaneStats | None = None) -> SketchReading:
        """Return the gaps between chunks: those between tokens, but for the tokens that left together; `more`: as `window` has it."""
        more = more or _NOTHING
        chunks = _both(self.itl, self.paced_gap), _both(more.itl, more.paced_gap)
        return SketchReading(*chunks, without_zeros=self.together + more.together)

    def stream_gap_sum_s(self) -> float:
        """Return the sum of the gaps between chunks."""
        return self.itl.sum_s + self.paced_gap.sum_s

    def token_gaps(self) -> QuantileSketch:
        """Return the gaps between tokens, not to be changed."""
        return _both(self.itl, self.paced_itl)

    def window(self, seconds: float, slo: LaneSlo, more: LaneStats | None = None) -> LaneWindow:
        """Return these counts as the figures of a window of this length, those of the SLO's targets among them.

        `more`: they and these are read as if they were merged.
        """
        more = more or _NOTHING
        readings = _readings(self, more)
        itl, gap = readings[_ITL], readings[_STREAM_GAP]
        itl_shown = itl.summary()
        streams = self.streams.beside(more.streams) if more.streams.answers else self.streams
        good, breached = self.good + more.good, _sum_of(self.breached, more.breached)
        judged = good + sum(breached.values())
        return LaneWindow(
            seconds=seconds,
            offered=self.offered + more.offered,
            good=good,
            breached=breached,
            covered=covered_refusals(breached.get(BreachKind.REFUSED, 0), allowance=slo.shed * judged),
            shed_share=slo.shed,
            shed=_sum_of(self.shed, more.shed),
            finished=self.finished + more.finished,
            looped=self.looped + more.looped,
            preempted=self.preempted + more.preempted,
            prefixes_lost=self.prefixes_lost + more.prefixes_lost,
            prefix_tokens_lost=self.prefix_tokens_lost + more.prefix_tokens_lost,
            prompt_tokens=self.prompt_tokens + more.prompt_tokens,
            output_tokens=self.output_tokens + more.output_tokens,
            finished_output_tokens=self.finished_output_tokens + more.finished_output_tokens,
            ttft=readings[_TTFT].summary(),
            itl=itl_shown,
            e2e=readings[_E2E].summary(),
            queue_wait=readings[_QUEUE_WAIT].summary(),
            streams=streams.figures(itl_shown if gap is itl else gap.summary()),
            targets=tuple(
                [
                    _stalls(each, streams) if each.metric is _STALL_RATE else _count(each, readings[each.metric])
                    for each in slo.targets
                ]
            ),
        )


_NOTHING = LaneStats()
_UNREAD = SketchReading(QuantileSketch())  # of nothing
# An enum's members are slow to look up, and these are looked up for every window of every snapshot.
_TTFT, _ITL, _E2E, _COMPLETION = Metric.TTFT, Metric.ITL, Metric.E2E, Metric.COMPLETION
_QUEUE_WAIT, _STREAM_GAP, _TOKENS_PER_CHUNK = Metric.QUEUE_WAIT, Metric.STREAM_GAP, Metric.TOKENS_PER_CHUNK
_STALL_RATE = Metric.STALL_RATE


def _readings(one: LaneStats, more: LaneStats) -> dict[Metric, SketchReading]:
    """Return what both have measured, read together."""
    is_paced = bool(one.paced_itl.count or more.paced_itl.count)
    itl = SketchReading(one.token_gaps(), more.token_gaps()) if is_paced else _read(one.itl, more.itl)
    # Where each token leaves by itself, as it comes, the gaps between chunks are those between tokens.
    is_plain = not (is_paced or one.together or more.together or one.paced_gap.count or more.paced_gap.count)
    e2e = _read(one.e2e, more.e2e)
    return {
        _TTFT: _read(one.ttft, more.ttft),
        _ITL: itl,
        _E2E: e2e,
        _COMPLETION: e2e,
        _QUEUE_WAIT: _read(one.queue_wait, more.queue_wait),
        _STREAM_GAP: itl if is_plain else one.stream_gaps(more),
        _TOKENS_PER_CHUNK: _read(one.unit, more.unit),
    }


def _read(one: QuantileSketch, more: QuantileSketch) -> SketchReading:
    return SketchReading(one, more) if one.count or more.count else _UNREAD


def _stalls(target: LatencyTarget, streams: StreamCounts) -> TargetCount:
    answers, stalled = streams.answers, streams.stalled_answers
    return TargetCount(target=target, samples=answers, over=stalled, measured_s=stalled / answers if answers else 0.0)


def _both(one: QuantileSketch, other: QuantileSketch) -> QuantileSketch:
    if not other.count:
        return one
    both = QuantileSketch()
    both.merge(one)
    both.merge(other)
    return both


def _count(target: LatencyTarget, found: SketchReading) -> TargetCount:
    if not found.count:
        return TargetCount(target=target)
    return TargetCount(
        target=target,
        samples=found.count,
        over=found.count - found.count_at_most(target.limit_s),
        measured_s=found.quantile(target.percentile),
    )


def _sum_of(one: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    found = dict(one)
    for key, count in more.items():
        found[key] = found.get(key, 0) + count
    return found


def _add(counts: defaultdict[str, int], more: dict[str, int]) -> None:
    for key, count in more.items():
        counts[key] += count


def _subtract(counter: defaultdict[str, int], gone: dict[str, int]) -> None:
    for key, count in gone.items():
        left = counter[key] - count
        if left:
            counter[key] = left
        else:
            del counter[key]

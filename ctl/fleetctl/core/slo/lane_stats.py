"""What is counted of a lane over a time: requests by outcome, tokens, and the four latencies."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fleetctl.core.slo.sketch import QuantileSketch
from fleetctl.model.gateway import LaneWindow
from fleetctl.model.slo import Metric, TargetCount

if TYPE_CHECKING:
    from fleetctl.model.slo import LaneSlo, LatencyTarget


class LaneStats:
    """Counts; merges; becomes a LaneWindow."""

    __slots__ = (
        "breached", "dispatched", "e2e", "finished", "good", "itl", "offered", "output_tokens", "prompt_tokens",
        "queue_wait", "shed", "ttft",
    )  # fmt: skip

    def __init__(self) -> None:
        self.offered = 0
        self.dispatched = 0
        self.finished = 0
        self.good = 0
        self.breached: Counter[str] = Counter()
        self.shed: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.ttft = QuantileSketch()
        self.itl = QuantileSketch()
        self.e2e = QuantileSketch()
        self.queue_wait = QuantileSketch()

    def merge(self, other: LaneStats) -> None:
        """Add everything `other` counted."""
        self.offered += other.offered
        self.dispatched += other.dispatched
        self.finished += other.finished
        self.good += other.good
        self.breached.update(other.breached)
        self.shed.update(other.shed)
        self.prompt_tokens += other.prompt_tokens
        self.output_tokens += other.output_tokens
        self.ttft.merge(other.ttft)
        self.itl.merge(other.itl)
        self.e2e.merge(other.e2e)
        self.queue_wait.merge(other.queue_wait)

    def window(self, seconds: float, slo: LaneSlo) -> LaneWindow:
        """Return these counts as the figures of a window of this length, those of the SLO's targets among them."""
        return LaneWindow(
            seconds=seconds,
            offered=self.offered,
            good=self.good,
            breached=dict(self.breached),
            shed=dict(self.shed),
            finished=self.finished,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            ttft=self.ttft.summary(),
            itl=self.itl.summary(),
            e2e=self.e2e.summary(),
            queue_wait=self.queue_wait.summary(),
            targets=tuple(self._count(target) for target in slo.targets),
        )

    def _count(self, target: LatencyTarget) -> TargetCount:
        found = self._sketch(target.metric)
        if not found.count:
            return TargetCount(target=target)
        return TargetCount(
            target=target,
            samples=found.count,
            over=found.count - found.count_at_most(target.limit_s),
            measured_s=found.quantile(target.percentile),
        )

    def _sketch(self, metric: Metric) -> QuantileSketch:
        match metric:
            case Metric.TTFT:
                return self.ttft
            case Metric.ITL:
                return self.itl
            case Metric.E2E | Metric.COMPLETION:
                return self.e2e
            case Metric.QUEUE_WAIT:
                return self.queue_wait

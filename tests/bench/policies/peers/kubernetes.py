"""Kubernetes' HorizontalPodAutoscaler and KEDA's ScaledObject over it.

HPA: kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale: desired = ceil(current * metric / target), no change
within a tolerance of .1, every 15 s; up by the larger of 100 % and 4 pods a 15 s, down to the highest recommendation of the
last 300 s. KEDA (keda.sh/docs/latest/reference/scaledobject-spec): it feeds an HPA every `pollingInterval`, 30 s; its
`cooldownPeriod` only concerns the last step to zero, which no lane here takes.
Simplified: pods that are not ready count as pods (an HPA on pod metrics leaves them out, one on external metrics does not).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench.policies.peers.signals import LaneSignals, Trailing

if TYPE_CHECKING:
    from tests.bench.policies.peers.policy import ScalingRule
    from tests.bench.policies.peers.signals import ReplicaProfile

TOLERANCE = 0.1
# What a concurrency target leaves free of what a replica holds inside its SLO; Knative's default share too.
UTILIZATION = 0.7
_QUEUE_TARGET = 5.0  # requests waiting: the vLLM production stack's ScaledObject
# The published ScaledObject on TTFT has .3 s for an SLO of .5 s; other lanes get the same share.
_TTFT_SHARE = 0.6


def by_value(current: int, metric: float, target: float) -> int:
    """Return what a metric of type Value asks for: ceil(current * metric / target), the same within the tolerance."""
    ratio = metric / target
    return current if abs(ratio - 1.0) <= TOLERANCE else math.ceil(current * ratio - 1e-9)


def by_average_value(current: int, total: float, target: float) -> int:
    """Return what a metric of type AverageValue asks for: ceil(total / target), the same within the tolerance."""
    if current and abs(total / (target * current) - 1.0) <= TOLERANCE:
        return current
    return math.ceil(total / target - 1e-9)


@dataclass(slots=True)
class HorizontalPodAutoscaler:
    """The `behavior` around a recommendation. `recommend` gets the signals; None: no metric, and nothing is changed."""

    recommend: Callable[[LaneSignals], int | None]
    sync_s: float = 15.0
    poll_s: float = 0.0  # a metric is read anew no more often than this
    up_percent: float = 100.0
    up_pods: int = 4
    up_period_s: float = 15.0
    up_window_s: float = 0.0
    down_pods: int | None = None  # None: any number
    down_period_s: float = 15.0
    down_window_s: float = 300.0
    _next_s: float = 0.0
    _polled_s: float = -math.inf
    _metric: int | None = None
    _highest: Trailing = field(init=False)
    _lowest: Trailing = field(init=False)
    _before: list[tuple[float, int]] = field(default_factory=list)  # counts over time
    _answer: int | None = None

    def __post_init__(self) -> None:
        self._highest, self._lowest = Trailing(self.down_window_s), Trailing(max(self.up_window_s, 1e-6))

    def __call__(self, signals: LaneSignals) -> int:
        if signals.now_s < self._next_s:
            return signals.replicas if self._answer is None else self._answer
        self._next_s = signals.now_s + self.sync_s
        if signals.now_s - self._polled_s >= self.poll_s:
            self._polled_s, self._metric = signals.now_s, self.recommend(signals)
        wanted = signals.replicas if self._metric is None else self._metric
        self._answer = self._behaved(signals.now_s, signals.replicas, wanted)
        return self._answer

    def _behaved(self, now_s: float, current: int, wanted: int) -> int:
        """Return the count after stabilization and the limits on its pace."""
        if not self._before:  # the controller records the count that it finds as its first recommendation
            self._highest.add(now_s, current)
            if self.up_window_s:
                self._lowest.add(now_s, current)
        self._highest.add(now_s, wanted)
        self._lowest.add(now_s, wanted)
        self._before.append((now_s, current))
        if wanted > current:
            return max(current, min(int(self._lowest.least), self._most(now_s)))
        if wanted < current:
            return min(current, max(int(self._highest.most), self._fewest(now_s)))
        return current

    def _most(self, now_s: float) -> int:
        began = min(count for at_s, count in self._before if at_s > now_s - self.up_period_s)
        return max(began + self.up_pods, math.ceil(began * (1.0 + self.up_percent / 100.0)))

    def _fewest(self, now_s: float) -> int:
        if self.down_pods is None:
            return 0
        return max(count for at_s, count in self._before if at_s > now_s - self.down_period_s) - self.down_pods


def hpa_concurrency(profile: ReplicaProfile) -> ScalingRule:
    """Return an HPA on requests under way or waiting; a replica is meant to hold 70 % of what keeps the SLO."""
    target = UTILIZATION * profile.concurrency
    return HorizontalPodAutoscaler(lambda s: by_average_value(s.replicas, s.concurrency, target))


def keda_queue(_: ReplicaProfile) -> ScalingRule:
    """Return the vLLM production stack's ScaledObject: five waiting requests to a replica, polled every 30 s, HPA's behavior."""
    return HorizontalPodAutoscaler(
        lambda s: max(1, by_average_value(s.replicas, s.waiting_total, _QUEUE_TARGET)), poll_s=30.0
    )


def keda_ttft(profile: ReplicaProfile) -> ScalingRule:
    """Return the published ScaledObject on TTFT: .3 s of a .5 s SLO, poll 15 s, up 30 s, down 120 s, 2 to 80 replicas."""
    threshold_s = _TTFT_SHARE * profile.ttft_limit_s

    def recommend(signals: LaneSignals) -> int | None:
        if signals.ttft_p95_s is None or math.isinf(threshold_s):
            return None if math.isinf(threshold_s) else 2
        return min(80, max(2, by_value(signals.replicas, signals.ttft_p95_s, threshold_s)))

    return HorizontalPodAutoscaler(recommend, poll_s=15.0, up_window_s=30.0, down_window_s=120.0)

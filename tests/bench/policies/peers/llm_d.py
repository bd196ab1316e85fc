"""llm-d: its SLO law over KEDA, and the workload variant autoscaler, WVA, in its two versions.

The law, every 15 s: s = mean over 45 s of min(max(P90 TTFT / SLO, P90 TPOT / SLO), 2), c = ready / n; above .55
n + ceil(n (s c / .55 - 1)), below .40 n - floor(n (1 - s / .40)); up by the larger of 100 % and 4 pods a 60 s after 30 s of
stabilization, down one a 120 s over a window of 180 s. Published for Qwen3-32B TP2 on H100 with 3 to 8 replicas.
WVA, every 60 s: V1 takes a replica at KV >= .8 or queue >= 5 for saturated; one more where the others' mean spare is under .1
of KV or 3 of queue, one less where spare stays after load * N / (N - 1). V2 counts tokens: need = demand / .85 - (ready +
pending) * capacity, spare = ready * capacity - demand / .70.
Simplified: P90 is read between P50 and P95 as of a lognormal; a lane without a TTFT promise is held by its count.
WVA V2's capacity is the smaller of .8 of the KV cache and what a replica holds inside its SLO.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench.policies.peers.kubernetes import HorizontalPodAutoscaler
from tests.bench.policies.peers.signals import Trailing

if TYPE_CHECKING:
    from tests.bench.policies.peers.policy import ScalingRule
    from tests.bench.policies.peers.signals import LaneSignals, ReplicaProfile

UP_FROM = 0.55
DOWN_FROM = 0.40
_SATURATION_MAX = 2.0


def slo_law(replicas: int, ready: int, saturation: float) -> int:
    """Return the replicas that the law wants at a saturation (a latency's share of its SLO)."""
    if saturation > UP_FROM:
        share = ready / replicas if replicas else 1.0
        return replicas + max(0, math.ceil(replicas * (saturation * share / UP_FROM - 1.0) - 1e-9))
    if saturation < DOWN_FROM:
        return replicas - math.floor(replicas * (1.0 - saturation / DOWN_FROM) + 1e-9)
    return replicas


@dataclass(slots=True)
class SaturationMean:
    """The law's recommendation: its saturation is averaged over 45 s."""

    ttft_limit_s: float
    itl_limit_s: float
    _seen: Trailing = field(default_factory=lambda: Trailing(45.0))

    def __call__(self, signals: LaneSignals) -> int | None:
        if math.isinf(self.ttft_limit_s):
            return None
        ttft = (signals.ttft_p90_s or 0.0) / self.ttft_limit_s
        tpot = (signals.itl_p90_s or 0.0) / self.itl_limit_s
        self._seen.add(signals.now_s, min(max(ttft, tpot), _SATURATION_MAX))
        return max(1, slo_law(signals.replicas, signals.ready, self._seen.mean))


def llm_d_law(profile: ReplicaProfile) -> ScalingRule:
    """Return the SLO law with its published behavior."""
    return HorizontalPodAutoscaler(
        SaturationMean(profile.ttft_limit_s, profile.itl_limit_s),
        up_period_s=60.0, up_window_s=30.0, down_pods=1, down_period_s=120.0, down_window_s=180.0,
    )  # fmt: skip


@dataclass(slots=True)
class SpareCapacityAutoscaler:
    """WVA V1. It changes nothing while replicas are being added, as its guard against cascades has it."""

    decide_s: float = 60.0
    kv_saturated: float = 0.8
    queue_saturated: float = 5.0
    kv_spare_min: float = 0.10
    queue_spare_min: float = 3.0
    _next_s: float = 0.0

    def __call__(self, signals: LaneSignals) -> int:
        if signals.now_s < self._next_s or not signals.kv_usage:
            return signals.replicas
        self._next_s = signals.now_s + self.decide_s
        if signals.ready < signals.replicas:
            return signals.replicas
        # What the gateway holds back would stand in the engines' queues behind a plain one.
        held = signals.queued / len(signals.kv_usage)
        loads = [(kv, queue + held) for kv, queue in zip(signals.kv_usage, signals.waiting, strict=True)]
        free = [(kv, queue) for kv, queue in loads if kv < self.kv_saturated and queue < self.queue_saturated]
        if not free or not self._has_spare(free, 1.0):
            return signals.replicas + 1
        count = len(free)
        if len(loads) > 1 and count == len(loads) and self._has_spare(free, count / (count - 1)):
            return signals.replicas - 1
        return signals.replicas

    def _has_spare(self, loads: list[tuple[float, float]], times: float) -> bool:
        kv = sum(self.kv_saturated - kv * times for kv, _ in loads) / len(loads)
        queue = sum(self.queue_saturated - queue * times for _, queue in loads) / len(loads)
        return kv >= self.kv_spare_min and queue >= self.queue_spare_min


def wva_v1(_: ReplicaProfile) -> ScalingRule:
    """Return WVA's first version: what it wants is a metric, which an HPA with its default behavior carries out."""
    rule = SpareCapacityAutoscaler()
    return HorizontalPodAutoscaler(rule, poll_s=rule.decide_s)


@dataclass(slots=True)
class TokenCapacityAutoscaler:
    """WVA V2: demand is the tokens that engines hold and those that wait, capacity what a replica can hold."""

    capacity_tokens: float
    kv_tokens: float
    tokens_each: float  # of a resident request, on average: its prompt and half of its answer
    decide_s: float = 60.0
    up_share: float = 0.85
    down_share: float = 0.70
    _next_s: float = 0.0

    def __call__(self, signals: LaneSignals) -> int:
        if signals.now_s < self._next_s:
            return signals.replicas
        self._next_s = signals.now_s + self.decide_s
        return max(1, self.wanted(signals.replicas, signals.ready, self._demand(signals)))

    def wanted(self, replicas: int, ready: int, demand_tokens: float) -> int:
        """Return the count for a demand: up by what is needed, down by whole spare replicas."""
        need = demand_tokens / self.up_share - replicas * self.capacity_tokens
        if need > 0:
            return replicas + math.ceil(need / self.capacity_tokens - 1e-9)
        spare = ready * self.capacity_tokens - demand_tokens / self.down_share
        return replicas - math.floor(max(0.0, spare) / self.capacity_tokens + 1e-9)

    def _demand(self, signals: LaneSignals) -> float:
        return self.kv_tokens * sum(signals.kv_usage) + self.tokens_each * signals.waiting_total


def wva_v2(profile: ReplicaProfile) -> ScalingRule:
    """Return WVA's second version, carried out the same way."""
    each = profile.prompt_tokens + profile.output_tokens / 2.0
    capacity = min(0.8 * profile.kv_tokens, profile.concurrency * each)
    rule = TokenCapacityAutoscaler(capacity_tokens=capacity, kv_tokens=profile.kv_tokens, tokens_each=each)
    return HorizontalPodAutoscaler(rule, poll_s=rule.decide_s)

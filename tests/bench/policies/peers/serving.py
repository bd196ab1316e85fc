"""Autoscalers of serving frameworks: Knative's KPA, Ray Serve's, SkyServe's.

Simplified: each is given what a replica holds, or serves a second, inside its SLO, from the performance model; at their
published defaults (100 concurrent, 2 ongoing) an LLM's replica would be a wall to one and idle to the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench.policies.peers.kubernetes import UTILIZATION
from tests.bench.policies.peers.signals import Trailing

if TYPE_CHECKING:
    from tests.bench.policies.peers.policy import ScalingRule
    from tests.bench.policies.peers.signals import LaneSignals, ReplicaProfile


@dataclass(slots=True)
class KnativePodAutoscaler:
    """knative.dev/docs/serving/autoscaling/kpa-specific: mean concurrency over 60 s, over 6 s in panic.

    Every 2 s: desired = clamp(ceil(observed / target), floor(ready / 2), ceil(1000 * ready)). Panic from twice what the
    ready ones are meant for, until the stable window has passed without it; in panic no count is lowered.
    """

    target: float
    stable_s: float = 60.0
    panic_s: float = 6.0
    panic_at: float = 2.0
    tick_s: float = 2.0
    up_max: float = 1000.0
    down_max: float = 2.0
    _stable: Trailing = field(init=False)
    _panic: Trailing = field(init=False)
    _panicked_s: float | None = None
    _most: int = 0
    _next_s: float = 0.0
    _answer: int | None = None

    def __post_init__(self) -> None:
        self._stable, self._panic = Trailing(self.stable_s), Trailing(self.panic_s)

    def __call__(self, signals: LaneSignals) -> int:
        now_s = signals.now_s
        if now_s < self._next_s and self._answer is not None:
            return self._answer
        self._next_s = now_s + self.tick_s
        self._stable.add(now_s, signals.concurrency)
        self._panic.add(now_s, signals.concurrency)
        ready = max(1, signals.ready)
        wanted, urgent = (self._clamped(window.mean, ready) for window in (self._stable, self._panic))
        if math.ceil(self._panic.mean / self.target - 1e-9) / ready >= self.panic_at:
            self._panicked_s = now_s
        elif self._panicked_s is not None and now_s - self._panicked_s > self.stable_s:
            self._panicked_s, self._most = None, 0
        if self._panicked_s is not None:
            wanted = self._most = max(self._most, urgent, wanted)
        self._answer = max(1, wanted)
        return self._answer

    def _clamped(self, observed: float, ready: int) -> int:
        wanted = math.ceil(observed / self.target - 1e-9)
        return min(math.ceil(self.up_max * ready), max(math.floor(ready / self.down_max), wanted))


def knative(profile: ReplicaProfile) -> ScalingRule:
    """Return a KPA at 70 % of what a replica holds inside its SLO."""
    return KnativePodAutoscaler(target=UTILIZATION * profile.concurrency)


@dataclass(slots=True)
class RayServeAutoscaler:
    """docs.ray.io/en/latest/serve/autoscaling-guide: ceil(ongoing / target_ongoing_requests) over a look-back of 30 s.

    A change is made once it has been wanted for `upscale_delay_s` 30 s or `downscale_delay_s` 600 s without a break.
    """

    target: float
    up_delay_s: float = 30.0
    down_delay_s: float = 600.0
    _seen: Trailing = field(default_factory=lambda: Trailing(30.0))
    _since: tuple[int, float] = (0, 0.0)  # the direction that is wanted, and since when

    def __call__(self, signals: LaneSignals) -> int:
        self._seen.add(signals.now_s, signals.concurrency)
        wanted = max(1, math.ceil(self._seen.mean / self.target - 1e-9))
        way = (wanted > signals.replicas) - (wanted < signals.replicas)
        if way != self._since[0]:
            self._since = (way, signals.now_s)
        held_s = signals.now_s - self._since[1]
        delay_s = self.up_delay_s if way > 0 else self.down_delay_s
        return wanted if way and held_s >= delay_s else signals.replicas


def ray_serve(profile: ReplicaProfile) -> ScalingRule:
    """Return Ray Serve's autoscaler at 70 % of what a replica holds inside its SLO."""
    return RayServeAutoscaler(target=UTILIZATION * profile.concurrency)


@dataclass(slots=True)
class RequestRateAutoscaler:
    """SkyServe, sky/serve/autoscalers.py: ceil(requests a second over 60 s / target_qps_per_replica), every 20 s.

    Up after the same was wanted for 300 s, down after 1,200 s.
    """

    target_rps: float
    decide_s: float = 20.0
    up_delay_s: float = 300.0
    down_delay_s: float = 1200.0
    _next_s: float = 0.0
    _ups: int = 0
    _downs: int = 0
    _answer: int | None = None

    def __call__(self, signals: LaneSignals) -> int:
        if signals.now_s < self._next_s and self._answer is not None:
            return self._answer
        self._next_s = signals.now_s + self.decide_s
        wanted = max(1, math.ceil(signals.rps / self.target_rps - 1e-9))
        self._ups = self._ups + 1 if wanted > signals.replicas else 0
        self._downs = self._downs + 1 if wanted < signals.replicas else 0
        is_due = self._ups * self.decide_s >= self.up_delay_s or self._downs * self.decide_s >= self.down_delay_s
        if is_due:
            self._ups = self._downs = 0
        self._answer = wanted if is_due else signals.replicas
        return self._answer


def skyserve(profile: ReplicaProfile) -> ScalingRule:
    """Return SkyServe's autoscaler at what a replica serves a second inside its SLO."""
    return RequestRateAutoscaler(target_rps=profile.rps)

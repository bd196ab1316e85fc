"""What a peer's autoscaler reads of one lane: the series that its Prometheus query, or its own proxy, would give it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.demand import rps_per_replica
from fleetctl.core.perf.kv import BLOCK_TOKENS
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Metric, Validity
from fleetctl.plugins import load_engine
from fleetctl.ports.engine import visible_engine
from fleetctl.sim.instance import EngineInstance, engine_instance

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.desired import Desired
    from fleetctl.model.gateway import LaneSnapshot
    from fleetctl.model.observation import EngineSignals, Observation
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import LaneSpec
    from fleetctl.model.slo import Quantiles

_RATE_WINDOW_S = 60.0
# Of the standard normal: where P90 lies between P50 and P95.
_P90_OF_P95 = 1.2815515655446004 / 1.6448536269514722


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaProfile:
    """What a peer's guide has one measure of a replica before it is deployed; here computed by the performance model."""

    instance: EngineInstance
    rps: float  # inside the lane's SLO
    peak_rps: float  # of the lane, as planned
    concurrency: float  # requests that it holds at that rate, mean
    prompt_tokens: float  # of a planned request, mean
    output_tokens: float
    ttft_limit_s: float  # infinite: the lane promises none
    itl_limit_s: float

    @property
    def kv_tokens(self) -> int:
        """Return what its KV cache holds."""
        return self.instance.limits.kv_blocks * BLOCK_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSignals:
    """One lane at one instant. `replicas` is the count that was asked for, as a Deployment's `spec.replicas`."""

    now_s: float
    replicas: int
    ready: int
    in_flight: int = 0  # at replicas
    queued: int = 0  # at the gateway
    waiting: tuple[int, ...] = ()  # vllm:num_requests_waiting by ready replica
    running: tuple[int, ...] = ()  # vllm:num_requests_running
    kv_usage: tuple[float, ...] = ()  # vllm:kv_cache_usage_perc, 0-1
    rps: float = 0.0  # arrivals over a minute
    ttft_p90_s: float | None = None  # over a minute; None: no sample
    ttft_p95_s: float | None = None
    itl_p90_s: float | None = None
    prompt_tokens: float = 0.0  # mean over a minute; 0: none finished
    output_tokens: float = 0.0

    @property
    def concurrency(self) -> int:
        """Return the requests that are under way or wait, wherever."""
        return self.in_flight + self.queued

    @property
    def waiting_total(self) -> int:
        """Return the requests without a place in a batch: in engines' queues and in the gateway's."""
        return self.queued + sum(self.waiting)


def replica_profile(desired: Desired, lane: str) -> ReplicaProfile:
    """Return a lane's replica as a benchmark before deployment would show it."""
    plan, spec = desired.plan.lane(lane), desired.profile.lane(lane)
    capabilities = visible_engine(load_engine, spec).capabilities
    rps = rps_per_replica(plan)
    planned_rps = plan.rps / max(1, plan.replicas)
    return ReplicaProfile(
        instance=engine_instance(desired.plan, plan, capabilities),
        rps=rps,
        peak_rps=plan.rps,
        concurrency=max(1.0, _concurrency(plan) * (rps / planned_rps if planned_rps else 1.0)),
        prompt_tokens=plan.prompt_tokens_mean,
        output_tokens=plan.output_tokens_mean,
        ttft_limit_s=_limit_s(spec, Metric.TTFT),
        itl_limit_s=_limit_s(spec, Metric.ITL),
    )


def _concurrency(plan: LanePlan) -> float:
    return plan.forecast.concurrency or 1.0


def _limit_s(spec: LaneSpec, metric: Metric) -> float:
    target = spec.slo.strictest(metric)
    return target.limit_s if target is not None else math.inf


def lane_signals(
    desired: Desired, observation: Observation, lane: str, *, now_s: float, wanted: int
) -> LaneSignals | None:
    """Return what a peer sees of a lane. None: its series stand still, and every peer holds."""
    gateway = observation.gateway
    if gateway is None or observation.gateway_validity is not Validity.OK:
        return None
    ready = [r for r in observation.replicas if r.record.lane == lane and r.record.state is ReplicaState.READY]
    engines = [r.engine for r in ready if r.engine.validity is Validity.OK]
    if ready and not engines and any(r.engine.validity is Validity.STALE for r in ready):
        return None
    snapshot = next((each for each in gateway.lanes if each.name == lane), None)
    return _signals(snapshot, engines, now_s=now_s, replicas=wanted, ready=len(ready))


def _signals(
    snapshot: LaneSnapshot | None, engines: list[EngineSignals], *, now_s: float, replicas: int, ready: int
) -> LaneSignals:
    if snapshot is None:
        return LaneSignals(now_s=now_s, replicas=replicas, ready=ready)
    window = snapshot.window(_RATE_WINDOW_S)
    done = max(1, window.finished)
    return LaneSignals(
        now_s=now_s,
        replicas=replicas,
        ready=ready,
        in_flight=snapshot.in_flight,
        queued=snapshot.queued,
        waiting=tuple(each.waiting for each in engines),
        running=tuple(each.running for each in engines),
        kv_usage=tuple(each.kv_usage or 0.0 for each in engines),  # simulated ones always say
        rps=window.offered / min(_RATE_WINDOW_S, max(1.0, now_s)),
        ttft_p90_s=p90_s(window.ttft),
        ttft_p95_s=window.ttft.p95_s if window.ttft.count else None,
        itl_p90_s=p90_s(window.itl),
        prompt_tokens=window.prompt_tokens / done,
        output_tokens=window.output_tokens / done,
    )


def p90_s(measured: Quantiles) -> float | None:
    """Return P90, which the gateway does not keep, between its P50 and P95 as of a lognormal. None: no sample."""
    if not measured.count:
        return None
    if measured.p50_s <= 0.0 or measured.p95_s <= 0.0:
        return measured.p95_s
    return measured.p50_s * math.exp(_P90_OF_P95 * math.log(measured.p95_s / measured.p50_s))


class Trailing:
    """What was seen in the last `seconds`, oldest first."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: deque[tuple[float, float]] = deque()

    def add(self, now_s: float, value: float) -> None:
        """Note a value, and forget what is too old."""
        self._seen.append((now_s, value))
        while self._seen[0][0] <= now_s - self._seconds:
            self._seen.popleft()

    @property
    def mean(self) -> float:
        """Return the mean of what is left, 0 without any."""
        return self.of(lambda values: math.fsum(values) / len(values))

    @property
    def most(self) -> float:
        """Return the largest, 0 without any."""
        return self.of(max)

    @property
    def least(self) -> float:
        """Return the smallest, 0 without any."""
        return self.of(min)

    def of(self, reduced: Callable[[list[float]], float]) -> float:
        """Return what a function makes of the values; 0 without any."""
        return reduced([value for _, value in self._seen]) if self._seen else 0.0

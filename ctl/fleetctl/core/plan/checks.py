"""What a number of replicas must satisfy: every promise at the upper end of its forecast, and room below the knee."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.plan.kv_overflow import OVERFLOW_MAX
from fleetctl.core.plan.replica import ReplicaModel, SteadyState
from fleetctl.core.plan.tail import TtftTail, ttft_tail
from fleetctl.core.slo.wording import format_limit
from fleetctl.core.workflows.promise import elapsed_s
from fleetctl.model.plan import Constraint
from fleetctl.model.slo import LatencyTarget, Metric
from fleetctl.model.workflows import ElapsedTarget, WorkflowKind
from fleetctl.units import format_duration, format_fraction

if TYPE_CHECKING:
    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.profile import LaneSpec

KNEE_SHARE_MAX = 0.95  # of a replica's knee: closer to it a queue takes hours to settle, and no tail is to be had
QUEUE_SHARE_MAX = 0.8  # of a TTFT promise


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """A lane's steady state when `replicas` of one kind share its demand."""

    replica: ReplicaModel
    replicas: int
    state: SteadyState
    ttft: TtftTail

    def e2e_s(self, fraction: float) -> float:
        """Return a quantile of submission to last token; TTFT and answer length vary independently."""
        output, step_s = self.replica.demand.output, self.state.step_s
        median_s = self.ttft.quantile_s(0.5)  # by bisection, as the other one is: most of the time of a plan
        middle = median_s + max(0.0, output.mean - 1) * step_s
        spread = 0.0 if fraction == 0.5 else self.ttft.quantile_s(fraction) - median_s
        return middle + math.copysign(
            math.hypot(spread, (output.quantile(fraction) - output.mean) * step_s), fraction - 0.5
        )

    def keeps(self, lane: LaneSpec, target: LatencyTarget) -> bool:
        """Whether a promise is met at the upper end of the forecast's interval, by as many requests as the objective asks for."""
        if target.metric is Metric.TTFT:
            limit_s = target.limit_s / self.replica.margin.of(Metric.TTFT)
            return self.ttft.exceeds(limit_s) <= 1.0 - held_share(lane, target, self.replica.demand)
        if target.metric in (Metric.E2E, Metric.COMPLETION) and self._surely_ends_in(target):
            return True
        return self.upper_s(lane, target) <= target.limit_s

    def _surely_ends_in(self, target: LatencyTarget) -> bool:
        """Whether requests end so far inside a limit that neither quantile of TTFT has to be sought to know it.

        `e2e_s` is at most twice that quantile of TTFT, the mean answer and the answers' spread.
        """
        output, step_s, fraction = self.replica.demand.output, self.state.step_s, target.percentile
        answer_s = (max(0.0, output.mean - 1) + abs(output.quantile(fraction) - output.mean)) * step_s
        left_s = target.limit_s / self.replica.margin.of(target.metric) - answer_s
        return fraction >= 0.5 and self.ttft.exceeds(left_s / 2) <= 1.0 - fraction

    def upper_s(self, lane: LaneSpec, target: LatencyTarget) -> float:
        """Return what a promise is held against: the upper end of the forecast, of as many requests as the objective asks for."""
        share = held_share(lane, target, self.replica.demand)
        return self.measure_s(target.metric, share) * self.replica.margin.of(target.metric)

    def measure_s(self, metric: Metric, fraction: float) -> float:
        """Return the forecast of one promise's metric at its percentile."""
        match metric:
            case Metric.TTFT:
                return self.ttft.quantile_s(fraction)
            case Metric.ITL | Metric.STREAM_GAP:  # a token is a chunk, until an engine or its load makes more of it
                return self.replica.gap_s(self.state, fraction)
            case Metric.QUEUE_WAIT:
                return self.ttft.wait_quantile_s(fraction)
            case Metric.E2E | Metric.COMPLETION:
                return self.e2e_s(fraction)
            case Metric.STALL_RATE | Metric.TOKENS_PER_CHUNK:
                return 0.0  # no model says how often an engine pauses, or merges tokens: nothing is sized for it


def held_share(lane: LaneSpec, target: LatencyTarget, demand: LaneDemand) -> float:
    """Return the share of requests that must be inside a promise's limit: a late first token makes a request a miss.

    Other promises are not of single requests, or are held over all of a request's gaps.
    """
    if target.metric is Metric.TTFT and target == lane.slo.strictest(Metric.TTFT):
        return max(target.percentile, demand.objective)
    return target.percentile


def evaluate(replica: ReplicaModel, replicas: int) -> OperatingPoint | None:
    """Return the lane's steady state over this many replicas, or None where they are saturated."""
    state = replica.operate(replica.demand.rps / replicas)
    if state is None or not replica.has_free_slot(state):
        return None
    return OperatingPoint(replica=replica, replicas=replicas, state=state, ttft=ttft_tail(replica, state, replicas))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowTarget:
    """One promise of one kind of workflow whose calls are a lane's."""

    kind: WorkflowKind
    target: ElapsedTarget

    @property
    def key(self) -> tuple[str, ...]:
        """The profile's key that says it."""
        return "workflows", "kinds", self.kind.name, "slo", f"p{self.target.percentile * 100:g}"

    def __str__(self) -> str:
        return f"workflow {self.kind.name}'s {self.target.name} <= {format_duration(self.target.limit_s)}"

    def measure_s(self, found: OperatingPoint) -> float:
        """Return the forecast of the elapsed time at its percentile."""
        return elapsed_s(self.kind, found.e2e_s, self.target.percentile)


def workflow_targets(demand: LaneDemand) -> tuple[WorkflowTarget, ...]:
    """Return every promise of the workflows whose calls are a lane's."""
    return tuple(WorkflowTarget(kind=kind, target=each) for kind in demand.workflows for each in kind.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a number of replicas is too few."""

    constraint: Constraint
    why: str  # one clause
    target: LatencyTarget | None = None
    measured_s: float = 0.0
    workflow: WorkflowTarget | None = None  # the promise of a workflow whose calls are the lane's


_OF_METRIC = {
    Metric.TTFT: Constraint.PREFILL,
    Metric.QUEUE_WAIT: Constraint.PREFILL,
    Metric.ITL: Constraint.ITL,
    Metric.E2E: Constraint.DECODE,
    Metric.COMPLETION: Constraint.COMPLETION,
    Metric.STREAM_GAP: Constraint.ITL,
    Metric.STALL_RATE: Constraint.ITL,
    Metric.TOKENS_PER_CHUNK: Constraint.ITL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailedCheck:
    """The first promise or limit that fails, not yet measured."""

    target: LatencyTarget | None = None  # None: the ceiling on a replica's load
    queue_wait_s: float | None = None  # the queue alone takes too much of the target
    overflow: float | None = None  # the KV cache is too small for the peak, so often
    workflow: WorkflowTarget | None = None


def holds(lane: LaneSpec, found: OperatingPoint | None, replica: ReplicaModel) -> bool:
    """Whether every promise and limit is kept. Much cheaper than to say by how much one is missed."""
    return found is not None and _failed_check(lane, found, replica) is None


def keeps_promises(lane: LaneSpec, found: OperatingPoint) -> bool:
    """Whether every promise is kept, whatever reserve the ceilings would leave."""
    return _missed_target(lane, found) is None


def failure(
    lane: LaneSpec, found: OperatingPoint | None, replica: ReplicaModel, batch_slots: Constraint
) -> Failure | None:
    """Return the first promise or limit that fails, or None. `batch_slots` is what limits the sequences in a batch."""
    if found is None:
        return saturation(replica, batch_slots)
    failed = _failed_check(lane, found, replica)
    if failed is None:
        return None
    target = failed.target
    if failed.overflow is not None:
        return Failure(
            constraint=Constraint.KV_MEMORY,
            why=f"those running at the peak would need more KV cache than there is in up to "
            f"{100.0 * failed.overflow:.2g}% of the time, where {format_fraction(OVERFLOW_MAX)} of requests may be evicted",
        )
    if failed.queue_wait_s is not None:
        return Failure(
            constraint=Constraint.PREFILL,
            why=f"the queue alone would take {format_duration(failed.queue_wait_s)} of the TTFT promise",
            target=target,
        )
    promised = failed.workflow or target
    if promised is not None:
        return _missed(lane, promised, found)
    load = found.state.rps / replica.knee_rps
    return Failure(
        constraint=saturation(replica, batch_slots).constraint,
        why=f"a replica would run at {format_fraction(round(load, 3))} of its knee, where {format_fraction(KNEE_SHARE_MAX)} "
        "is the most that is planned with",
    )


def _missed(lane: LaneSpec, promised: LatencyTarget | WorkflowTarget, found: OperatingPoint) -> Failure:
    """Return the failure of a promise: by how much it is missed."""
    if isinstance(promised, WorkflowTarget):
        measured = promised.measure_s(found)
        why = f"{promised} would be missed at {format_duration(measured)}"
        return Failure(constraint=Constraint.WORKFLOW, why=why, measured_s=measured, workflow=promised)
    measured = found.upper_s(lane, promised)
    return Failure(
        constraint=_OF_METRIC[promised.metric],
        why=f"{describe(promised)} would be missed at {format_duration(measured)}{_held_at(lane, promised, found)}",
        target=promised,
        measured_s=measured,
    )


def _held_at(lane: LaneSpec, promised: LatencyTarget, found: OperatingPoint) -> str:
    """Return what the figure beside a missed promise is, where it is not the forecast of that percentile."""
    share, margin = held_share(lane, promised, found.replica.demand), found.replica.margin.of(promised.metric)
    parts = [f"P{share * 100:g}"] if share > promised.percentile else []
    parts += ["the upper end of its interval"] if margin > 1.0 else []
    return f" ({', '.join(parts)})" if parts else ""


def _failed_check(lane: LaneSpec, found: OperatingPoint, replica: ReplicaModel) -> _FailedCheck | None:
    missed = _missed_target(lane, found)
    if missed is not None:
        return missed
    if not replica.is_within_knee(found.state.rps, KNEE_SHARE_MAX):
        return _FailedCheck()
    overflow = replica.overflows(found.state)
    return _FailedCheck(overflow=overflow) if overflow > OVERFLOW_MAX else None


def _missed_target(lane: LaneSpec, found: OperatingPoint) -> _FailedCheck | None:
    for target in lane.slo.targets:
        if not found.keeps(lane, target):
            return _FailedCheck(target=target)
        wait_s = found.ttft.wait_quantile_s(target.percentile)
        if target.metric is Metric.TTFT and wait_s > QUEUE_SHARE_MAX * target.limit_s:
            return _FailedCheck(target=target, queue_wait_s=wait_s)
    for each in workflow_targets(found.replica.demand):
        if each.measure_s(found) > each.target.limit_s:
            return _FailedCheck(workflow=each)
    return None


def saturation(replica: ReplicaModel, batch_slots: Constraint) -> Failure:
    """Return what a replica runs out of at its knee: prompt throughput, or slots in the batch."""
    at_knee = replica.operate(replica.knee_rps)
    if at_knee is None or at_knee.prefill_load > 0.97:
        return Failure(constraint=Constraint.PREFILL, why="prompts would pile up faster than they are processed")
    return Failure(
        constraint=batch_slots, why=f"more sequences would run at once than the {replica.seqs_max} a batch may hold"
    )


def describe(target: LatencyTarget) -> str:
    """Return how messages name a promise: "TTFT P99 <= 300ms"."""
    if target.metric is Metric.STALL_RATE:
        return f"stall rate <= {format_limit(target)}"
    name = _NAMES.get(target.metric, target.metric.value.upper())
    return f"{name} P{target.percentile * 100:g} <= {format_limit(target)}"


_NAMES = {
    Metric.QUEUE_WAIT: "queue wait",
    Metric.COMPLETION: "completion",
    Metric.STREAM_GAP: "stream gap",
    Metric.TOKENS_PER_CHUNK: "tokens per chunk",
}

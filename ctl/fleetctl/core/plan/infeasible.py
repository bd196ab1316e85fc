"""Says why no plan meets a lane's promises, and which nearest ones a plan would meet."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.core.plan.checks import describe, evaluate
from fleetctl.core.plan.replica import ReplicaModel
from fleetctl.core.plan.sizing import CHUNKS, REPLICAS_SEARCHED_MAX, SizingResult, choices, replica_model, worst_step_s
from fleetctl.errors import InfeasiblePlanError
from fleetctl.model.slo import LatencyTarget, Metric
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fleetctl.core.plan.instances import Instance
    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.profile import LaneSpec


def too_many(lane: LaneSpec, found: Sequence[SizingResult], demand: LaneDemand) -> InfeasiblePlanError:
    """Return the error for a lane that needs more replicas than its bound allows."""
    best = min(found, key=lambda s: s.needed)
    why = f" ({best.fewer.why} with one less)" if best.fewer else ""
    hint = f"set lanes.{lane.name}.replicas.max to {best.needed} or more"
    reachable = _nearest(lane, [best.instance], demand, lane.replicas.max)
    if reachable:
        hint += f"; or with {lane.replicas.max}, the nearest feasible promise is {reachable}"
    return InfeasiblePlanError(
        f"lane {lane.name}: {demand.rps:,.4g} rps need {best.needed} replicas on {best.instance.label}{why}, "
        f"and replicas.max is {lane.replicas.max}",
        hint=hint,
    )


def out_of_reach(lane: LaneSpec, found: Sequence[Instance], demand: LaneDemand) -> InfeasiblePlanError:
    """Return the error for a promise that no number of replicas keeps on any allowed instance."""
    failing = _failing(lane, found, demand)
    if not failing and not _is_pinned(lane):
        return _too_much_load(lane, found, demand)
    broken = "; ".join(f"{describe(t)}: the best possible is {format_duration(s)} on {i.label}" for t, s, i in failing)
    nearest = _nearest(lane, found, demand, lane.replicas.max)
    return InfeasiblePlanError(
        f"lane {lane.name}: no number of replicas keeps {broken or 'every promise with the pinned launch settings'}",
        hint=f"nearest feasible: {nearest}" if nearest else "unpin launch settings, or allow faster GPUs",
    )


def _is_pinned(lane: LaneSpec) -> bool:
    """Whether the profile sets anything of how the lane's engines are started that the plan would choose."""
    pinned = lane.launch
    return any(
        value is not None
        for value in (
            pinned.tensor_parallel, pinned.pipeline_parallel, pinned.max_num_seqs, pinned.max_model_len,
            pinned.max_num_batched_tokens, pinned.gpu_memory_utilization,
        )
    )  # fmt: skip


def _too_much_load(lane: LaneSpec, found: Sequence[Instance], demand: LaneDemand) -> InfeasiblePlanError:
    """Return the error for a load that more replicas than are ever looked at do not carry."""
    labels = ", ".join(sorted({instance.label for instance in found}))
    return InfeasiblePlanError(
        f"lane {lane.name}: {demand.rps:,.4g} rps need more than {REPLICAS_SEARCHED_MAX:,} replicas on any of "
        f"{labels}, and replicas.max is {lane.replicas.max}",
        hint="lower workload.peak_rps, or split the load over several fleets",
    )


def _failing(
    lane: LaneSpec, found: Sequence[Instance], demand: LaneDemand
) -> list[tuple[LatencyTarget, float, Instance]]:
    """Return every promise out of reach, each with its best possible value and where."""
    failing = []
    for target in lane.slo.targets:
        best = min(((_floor_s(target, i, lane, demand), i) for i in found), key=lambda b: b[0])
        # Infinite: another promise already leaves no lawful batch, and is named for it.
        if target.limit_s < best[0] < math.inf:
            failing.append((target, *best))
    return failing


def _floor_s(target: LatencyTarget, instance: Instance, lane: LaneSpec, demand: LaneDemand) -> float:
    """Return the best an unloaded instance does; for ITL, one sequence beside the smallest chunk."""
    if target.metric is Metric.ITL:
        tokens = lane.launch.max_num_batched_tokens or CHUNKS[-1]
        replica = ReplicaModel(step=instance.step, demand=demand, batched_tokens_max=tokens, seqs_max=1)
        return worst_step_s(replica, 1)
    return min(_measured(target, instance, lane, demand, REPLICAS_SEARCHED_MAX), default=math.inf)


def _measured(
    target: LatencyTarget, instance: Instance, lane: LaneSpec, demand: LaneDemand, replicas: int
) -> Iterable[float]:
    for settings in choices(lane, instance, demand):
        state = evaluate(replica_model(instance, demand, settings), replicas)
        if state is not None:
            yield state.measure_s(target.metric, target.percentile)


def _nearest(lane: LaneSpec, found: Sequence[Instance], demand: LaneDemand, replicas: int) -> str:
    """Return the least relaxed promise, as "TTFT P99 >= 412ms on L40S"; empty where this many are saturated anyway."""
    for target in lane.slo.targets:
        within = [(s, i) for i in found for s in _measured(target, i, lane, demand, replicas)]
        if target.metric is Metric.ITL or not within:
            within = [(_floor_s(target, i, lane, demand), i) for i in found]
        floor_s, instance = min(within, key=lambda b: b[0])
        if target.limit_s < floor_s < math.inf:
            # Rounded up, so that the promise named is one that is kept.
            relaxed = LatencyTarget(
                metric=target.metric, percentile=target.percentile, limit_s=math.ceil(floor_s * 1e3 + 0.5) / 1e3
            )
            return f"{describe(relaxed).replace('<=', '>=')} on {instance.label}"
    return ""

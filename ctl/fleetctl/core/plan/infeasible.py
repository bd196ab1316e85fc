"""Says why no plan meets a lane's promises, and which nearest ones a plan would meet."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.core.plan.checks import KNEE_SHARE_MAX, describe, evaluate, workflow_targets
from fleetctl.core.plan.margin import NO_MARGIN
from fleetctl.core.plan.pins import pinned_too_low
from fleetctl.core.plan.replica import ReplicaModel
from fleetctl.core.plan.sizing import CHUNKS, REPLICAS_SEARCHED_MAX, SizingResult, choices, replica_model, worst_step_s
from fleetctl.errors import FleetctlError, InfeasiblePlanError, joined
from fleetctl.model.slo import LatencyTarget, Metric
from fleetctl.units import format_duration, format_rps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
        f"lane {lane.name}: {format_rps(demand.rps)} rps need {best.needed} replicas on {best.instance.label}{why}, "
        f"and replicas.max is {lane.replicas.max}",
        hint=hint,
        key=("lanes", lane.name, "replicas", "max"),
    )


def out_of_reach(lane: LaneSpec, found: Sequence[Instance], demand: LaneDemand) -> FleetctlError:
    """Return the error for promises that no number of replicas keeps on any allowed instance, one for each."""
    failing = [_promise_out_of_reach(lane, missed, found, demand) for missed in _failing(lane, found, demand)]
    failing += _workflows_out_of_reach(lane, found, demand)
    if failing:
        return joined(failing)
    return pinned_too_low(lane, found, demand) or _too_much_load(lane, found, demand)


_OF_STEPS = (Metric.ITL, Metric.STREAM_GAP)  # as long as an engine's step takes
_Missed = tuple[LatencyTarget, float, "Instance"]  # a promise, the best possible in seconds, and where


def _promise_out_of_reach(
    lane: LaneSpec, missed: _Missed, found: Sequence[Instance], demand: LaneDemand
) -> InfeasiblePlanError:
    target, best_s, instance = missed
    nearest = _relaxed(target, lane, found, demand, lane.replicas.max)
    return InfeasiblePlanError(
        f"lane {lane.name}: no number of replicas keeps {describe(target)}: the best possible is "
        f"{format_duration(best_s)} on {instance.label}",
        hint=(f"nearest feasible: {nearest}" if nearest else "relax it, or allow faster GPUs") + _of_risk(instance),
        key=("lanes", lane.name, *target.key),
    )


def _of_risk(instance: Instance) -> str:
    """Return the other way out where a promise is held at the upper end of its forecast."""
    if instance.margin == NO_MARGIN:
        return ""
    return "; or take a plan whose forecast's interval may cross the promise: --accept-risk"


def _workflows_out_of_reach(
    lane: LaneSpec, found: Sequence[Instance], demand: LaneDemand
) -> Iterator[InfeasiblePlanError]:
    """Yield an error for each promise of the lane's workflows that the best of its instances misses while idle."""
    for each in workflow_targets(demand):
        best_s, instance = min(
            (
                (each.measure_s(state), one)
                for one in found
                for settings in choices(lane, one, demand)
                if (state := evaluate(replica_model(one, demand, settings), REPLICAS_SEARCHED_MAX)) is not None
            ),
            key=lambda known: known[0],
            default=(math.inf, None),
        )
        if instance is not None and each.target.limit_s < best_s:
            best = format_duration(best_s)
            yield InfeasiblePlanError(
                f"lane {lane.name}: no number of replicas keeps {each}: the best possible is {best} on {instance.label}",
                hint=f"promise {format_duration(math.ceil(best_s * 10 + 0.5) / 10)} or more, fewer steps, or shorter answers "
                "(lanes.NAME.generation, workload.output_tokens)",
                key=each.key,
            )


def _too_much_load(lane: LaneSpec, found: Sequence[Instance], demand: LaneDemand) -> InfeasiblePlanError:
    """Return the error for a load that more replicas than are ever looked at do not carry."""
    instance, each_rps = max(((i, _carried_rps(lane, i, demand)) for i in found), key=lambda known: known[1])
    most = min(lane.replicas.max, REPLICAS_SEARCHED_MAX)
    bound = f"replicas.max is {lane.replicas.max}" if most < REPLICAS_SEARCHED_MAX else "a lane is planned with so many"
    needed = math.ceil(demand.rps / each_rps) if each_rps else 0
    return InfeasiblePlanError(
        f"lane {lane.name}: {format_rps(demand.rps)} rps need more than {REPLICAS_SEARCHED_MAX:,} replicas (about "
        f"{needed:,} on {instance.label}), and {bound}",
        hint=f"lower workload.peak_rps: {most:,} replicas carry about {format_rps(most * each_rps)} rps of this lane; "
        "or split the load over several fleets",
        key=("lanes", lane.name, "replicas", "max") if most < REPLICAS_SEARCHED_MAX else ("workload", "peak_rps"),
    )


def _carried_rps(lane: LaneSpec, instance: Instance, demand: LaneDemand) -> float:
    """Return what one of many replicas carries at most."""
    knees = (replica_model(instance, demand, settings).knee_rps for settings in choices(lane, instance, demand))
    return max(knees, default=0.0) * instance.ranks * KNEE_SHARE_MAX


def _failing(lane: LaneSpec, found: Sequence[Instance], demand: LaneDemand) -> list[_Missed]:
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
    if target.metric in _OF_STEPS:
        tokens = lane.launch.max_num_batched_tokens or CHUNKS[-1]
        replica = ReplicaModel(step=instance.step, demand=demand, batched_tokens_max=tokens, seqs_max=1)
        return worst_step_s(replica, 1) * instance.margin.of(target.metric)
    return min(_measured(target, instance, lane, demand, REPLICAS_SEARCHED_MAX), default=math.inf)


def _measured(
    target: LatencyTarget, instance: Instance, lane: LaneSpec, demand: LaneDemand, replicas: int
) -> Iterable[float]:
    for settings in choices(lane, instance, demand):
        state = evaluate(replica_model(instance, demand, settings), replicas * instance.ranks)
        if state is not None:
            yield state.upper_s(lane, target)


def _nearest(lane: LaneSpec, found: Sequence[Instance], demand: LaneDemand, replicas: int) -> str:
    """Return the least relaxed promise; empty where this many are saturated anyway."""
    relaxed = (_relaxed(target, lane, found, demand, replicas) for target in lane.slo.targets)
    return next((text for text in relaxed if text), "")


def _relaxed(
    target: LatencyTarget, lane: LaneSpec, found: Sequence[Instance], demand: LaneDemand, replicas: int
) -> str:
    """Return the promise as so many replicas keep it, as "TTFT P99 >= 412ms on L40S"; empty where they do or cannot."""
    within = [(s, i) for i in found for s in _measured(target, i, lane, demand, replicas)]
    if target.metric in _OF_STEPS or not within:
        within = [(_floor_s(target, i, lane, demand), i) for i in found]
    floor_s, instance = min(within, key=lambda b: b[0])
    if not target.limit_s < floor_s < math.inf:
        return ""
    # Rounded up, so that the promise named is one that is kept.
    relaxed = LatencyTarget(
        metric=target.metric, percentile=target.percentile, limit_s=math.ceil(floor_s * 1e3 + 0.5) / 1e3
    )
    return f"{describe(relaxed).replace('<=', '>=')} on {instance.label}"

"""What the workflows of a lane ask of its replicas, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.workflows.promise import call_limit_s, call_percentile, elapsed_s
from fleetctl.model.plan import PlannedWorkflow
from fleetctl.units import format_count, format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fleetctl.core.plan.checks import OperatingPoint
    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import Profile
    from fleetctl.model.workflows import WorkflowKind


def with_workflows(
    plan: LanePlan,
    demand: LaneDemand,
    state: OperatingPoint,
    *,
    replicas_without: int,
    usd_per_hour_without: float,
) -> LanePlan:
    """Return a lane's plan with what each promise of its workflows comes to; `state` is that of the planned replicas.

    The last two are what the lane would take without them; no replicas where none would keep its own promises.
    """
    found = tuple(
        PlannedWorkflow(
            kind=kind.name,
            percentile=target.percentile,
            limit_s=target.limit_s,
            steps=kind.steps,
            fan_out=kind.fan_out,
            call_percentile=call_percentile(kind, target.percentile),
            call_limit_s=call_limit_s(kind, target.limit_s, target.percentile, state.e2e_s(call_percentile(kind, 0.5))),
            elapsed_s=elapsed_s(kind, state.e2e_s, target.percentile),
            replicas_without=replicas_without,
            cost_usd_per_hour_without=usd_per_hour_without,
        )
        for kind in demand.workflows
        for target in kind.targets
    )
    first, *rest = plan.reasons
    return replace(plan, workflows=found, reasons=(first, *(workflow_reason(plan, each) for each in found), *rest))


def workflow_reason(plan: LanePlan, planned: PlannedWorkflow) -> str:
    """Return which call percentile follows from a workflow's promise, and what keeping it costs."""
    calls = [format_count(planned.steps, "step")] if planned.steps > 1 else []
    calls += [f"{planned.fan_out} calls at once"] if planned.fan_out > 1 else []
    cost = f"{format_count(plan.replicas, 'replica')} for {format_usd(plan.cost_usd_per_hour)}/h"
    if planned.replicas_without:
        cost += f", without workflows {planned.replicas_without} for {format_usd(planned.cost_usd_per_hour_without)}/h"
    return (
        f"workflow {planned.kind}, elapsed P{planned.percentile * 100:g} <= {format_duration(planned.limit_s)}: "
        f"{' of '.join(calls) or 'one call'}, so each call E2E P{planned.call_percentile * 100:.4g} <= "
        f"{format_duration(planned.call_limit_s)}; {format_duration(planned.elapsed_s)} forecast, without the client's own "
        f"time; {cost}"
    )


def without_workflows(demands: Sequence[LaneDemand]) -> Iterator[tuple[str, int, LaneDemand]]:
    """Yield the keys of workflow promises, the number of the lane that is sized for them, and its demand without them.

    Each kind's alone, then all of the lane's, where it has several: two may each ask for what the other does.
    """
    for number, demand in enumerate(demands):
        promised = [kind for kind in demand.workflows if kind.targets]
        for kind in promised:
            rest = tuple(each for each in demand.workflows if each is not kind)
            yield _promise_key(kind), number, replace(demand, workflows=rest)
        if len(promised) > 1:
            yield " and ".join(map(_promise_key, promised)), number, replace(demand, workflows=())


def _promise_key(kind: WorkflowKind) -> str:
    target = max(kind.targets, key=lambda each: each.percentile)
    return f"workflows.kinds.{kind.name}.slo.p{target.percentile * 100:g} ({format_duration(target.limit_s)})"


def workflow_cautions(profile: Profile) -> Iterator[str]:
    """Yield the kinds with a promise that no lane is sized for."""
    for kind in profile.workflows.kinds if profile.workflows is not None else ():
        if kind.targets and not kind.lane:
            yield f"workflow {kind.name} names no lane: its promise is measured and judged, and nothing is sized for it"

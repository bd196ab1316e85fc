"""What follows from the keys of workflows: what each call of one has to keep, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.explanation.effect import Explanation, KeyEffect, KeyQuery, if_given, while_running
from fleetctl.core.plan.workflows import workflow_reason

if TYPE_CHECKING:
    from fleetctl.model.plan import PlannedWorkflow

_PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")


def _planned(query: KeyQuery) -> list[tuple[PlannedWorkflow, str]]:
    """Return what the kind's promises come to, in the lane that its calls enter, and that in words."""
    lanes = query.plan.lanes
    return [
        (each, workflow_reason(lane, each)) for lane in lanes for each in lane.workflows if each.kind == query.path[2]
    ]


def _promise(query: KeyQuery) -> KeyEffect | None:
    if not query.is_given:
        return None
    percentile = ".".join(query.path[4:])
    found = [text for each, text in _planned(query) if f"p{each.percentile * 100:g}" == percentile]
    if not found:
        return KeyEffect(is_planned=False)  # its kind names no lane
    return KeyEffect(text=found[0], is_binding=query.is_binding)


def _calls(query: KeyQuery) -> KeyEffect | None:
    if not query.is_given:
        return None
    found = _planned(query)
    return KeyEffect(text=found[-1][1]) if found else KeyEffect(is_planned=False)


WORKFLOW_KEYS: dict[str, Explanation] = {
    "workflows.order": if_given,
    "workflows.idle": while_running,
    "workflows.kinds.*.steps": _calls,
    "workflows.kinds.*.fan_out": _calls,
    "workflows.kinds.*.lane": _calls,
    **{f"workflows.kinds.*.slo.{percentile}": _promise for percentile in _PERCENTILES},
}

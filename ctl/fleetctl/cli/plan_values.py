"""A plan as JSON has it: of a lane on a machine without GPUs nothing that its stand-in's figures claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.codec import to_plain
from fleetctl.core.plan.model_totals import model_totals

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan, Plan

# Computed from the card that stands in for the machine's CPU: null there, by the object.
NOT_FORECAST = {"LanePlan": ("forecast", "throughput", "gpu_spec"), "PlannedWorkflow": ("elapsed_s",)}
_NO_CARD: dict[str, Any] = {"gpu": "", "gpu_count": 0, "gpu_spec": None}


def plan_value(plan: Plan) -> dict[str, Any]:
    """Return a plan's object, with the totals of its models."""
    has_gpus = any(not lane.offering.is_on_cpu for lane in plan.lanes)
    return {
        **to_plain(plan),
        "lanes": [_lane_value(lane) for lane in plan.lanes],
        "gpu_spec": to_plain(plan.gpu_spec) if has_gpus else None,
        "models": to_plain(model_totals(plan)),
    }


def _lane_value(lane: LanePlan) -> dict[str, Any]:
    value: dict[str, Any] = to_plain(lane)
    if not lane.offering.is_on_cpu:
        return value
    workflows = [each | dict.fromkeys(NOT_FORECAST["PlannedWorkflow"]) for each in value["workflows"]]
    known = {"budget": [], "gpu": "", "offering": value["offering"] | _NO_CARD, "workflows": workflows}
    return value | known | dict.fromkeys(NOT_FORECAST["LanePlan"])

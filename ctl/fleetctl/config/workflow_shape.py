"""Workflows, key by key: which kinds there are, what is promised of each, and when one is over."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from fleetctl.config.fields import Duration, Name
from fleetctl.config.lane_shape import PercentilesShape
from fleetctl.config.section import ProfileSection
from fleetctl.model.workflows import WorkflowKind, WorkflowsSpec
from fleetctl.units import format_duration

_SPEC = WorkflowsSpec()
_KIND = WorkflowKind(name="")
# A kind is one action of a user; more calls are a batch job, which a lane's completion is promised of.
_CALLS_MAX = 1000
# Every workflow that is not over is held in memory.
_IDLE_S_MIN, _IDLE_S_MAX = 1.0, 3600.0
_KINDS_MAX = 64  # each has its own series in every metric


class ElapsedShape(PercentilesShape):
    """Limits of workflows' elapsed time at the percentiles they are promised at."""

    p50: Duration | None = Field(default=None, description="Half of all workflows take this long or less.")
    p90: Duration | None = Field(default=None, description="90 % of all workflows take this long or less.")
    p95: Duration | None = Field(default=None, description="95 % of all workflows take this long or less.")
    p99: Duration | None = Field(default=None, description="99 % of all workflows take this long or less.")
    p99_9: Duration | None = Field(
        default=None, alias="p99.9", description="99.9 % of all workflows take this long or less."
    )


Calls = Annotated[int, Field(ge=1, le=_CALLS_MAX)]


class WorkflowKindShape(ProfileSection):
    """Workflows that are alike: the calls that one of them makes, and what is promised of it."""

    steps: Calls = Field(default=_KIND.steps, description="Steps of one, one after the other.")
    fan_out: Calls = Field(default=_KIND.fan_out, description="Calls of a step, which run at once.")
    slo: ElapsedShape | None = Field(
        default=None,
        description="What is promised of its elapsed time, from its first call's submission to its last call's end.",
    )
    lane: Name | None = Field(
        default=None,
        description="A workflow that names no kind is of this one where its first call enters this lane. Unset: none is.",
    )


class WorkflowsShape(ProfileSection):
    """Calls that belong together, by x-fleetctl-workflow or the trace id of traceparent, seen as one."""

    order: Annotated[str, Field(min_length=1)] = Field(
        default=_SPEC.order,
        description="In which order calls of workflows leave a queue: plain (as any other request), or another by the "
        "name it is installed under.",
    )
    idle_s: Duration = Field(
        default=_SPEC.idle_s, description="A workflow is over when none of its calls ran for so long; 1s to 1h."
    )
    kinds: Annotated[dict[Name, WorkflowKindShape], Field(max_length=_KINDS_MAX)] = Field(
        default_factory=dict,
        description="The kinds by name. A workflow says its own by x-fleetctl-workflow-kind; of no kind it has no SLO.",
    )

    @field_validator("idle_s", mode="after")
    @classmethod
    def _can_be_held(cls, idle_s: float) -> float:
        if not _IDLE_S_MIN <= idle_s <= _IDLE_S_MAX:
            held = "every workflow is held in memory so long"
            raise ValueError(f"must lie between 1s and 1h, not {format_duration(idle_s)}: {held}")
        return idle_s

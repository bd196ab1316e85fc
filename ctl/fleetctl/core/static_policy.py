"""The policy that never scales: the count a lane began with is kept, and replicas that end are replaced."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.reconcile import reconcile
from fleetctl.core.scaling import Target
from fleetctl.model.reason import ReasonCode

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.core.lane_view import LaneView
    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation


def static(desired: Desired, observation: Observation, memory: Memory, now: datetime) -> Decision:
    """Return what the built-in policy does, but for scaling."""
    return reconcile(desired, observation, memory, now, scaling=unchanged)


def unchanged(view: LaneView) -> Target:
    """Return the count that the lane has been given: an operator's, else what it began with, else the plan's."""
    memory = view.memory
    began_with = memory.wanted if memory.planned == view.plan.replicas else view.plan.replicas
    wanted = view.bounded(began_with) if view.override is None else view.override
    kept = replace(memory, wanted=wanted, planned=view.plan.replicas)
    return Target(wanted=wanted, memory=kept, code=ReasonCode.PLANNED, reason=f"{wanted}, whatever the load")

"""Which lanes' engines are started to schedule by priority: those of a profile with tiers, where the engine can."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.ports.engine import PriorityOrder, visible_engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.plan import LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec, Profile
    from fleetctl.ports.engine import Engine


def with_priorities(plan: Plan, profile: Profile, engine_of: Callable[[str], Engine]) -> Plan:
    """Return the plan whose lanes are launched to schedule by priority, where that is of use and their engine can.

    A lane whose `extra_args` have one of the engine's own flags of it is left to who wrote them.
    """
    if not profile.tiers:
        return plan
    lanes = tuple(
        replace(planned, launch=replace(planned.launch, priority_scheduling=True))
        if _schedules(profile.lane(planned.lane), engine_of)
        else planned
        for planned in plan.lanes
    )
    return replace(plan, lanes=lanes)


def priority_sign(lane: LaneSpec, settings: LaunchSettings, engine_of: Callable[[str], Engine]) -> int:
    """Return how a replica started so reads priorities: 1: lower ones first, -1: higher ones first, 0: not at all."""
    if not settings.priority_scheduling:
        return 0
    return visible_engine(engine_of, lane).capabilities.priority_order.value


def _schedules(lane: LaneSpec, engine_of: Callable[[str], Engine]) -> bool:
    started, visible = engine_of(lane.engine).capabilities, visible_engine(engine_of, lane).capabilities
    given = {word.split("=", 1)[0].replace("_", "-") for word in lane.launch.extra_args}
    return visible.priority_order is not PriorityOrder.NONE and given.isdisjoint(started.priority_flags)

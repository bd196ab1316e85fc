"""What a fleet costs, and what its planner forecasts, at the replicas that a step would leave it with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fleetctl import os_signals
from fleetctl.core.plan.lane_cost import lane_cost_usd_per_hour
from fleetctl.errors import FleetctlError
from fleetctl.model.plan import LanePlan, Plan
from fleetctl.model.profile import Profile, ReplicaBounds
from fleetctl.operations.planning import plan_profile

if TYPE_CHECKING:
    from fleetctl.model.runbook_run import RunbookRun
    from fleetctl.model.status import FleetStatus
    from fleetctl.operations.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneForecast:
    """A lane at a number of replicas, at its profile's peak."""

    lane: str
    replicas: int
    ttft_p99_s: float | None = None  # None: the planner finds that it would not keep its SLO
    itl_p99_s: float | None = None
    reason: str = ""  # why there is no forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetForecast:
    """A fleet as its plan and the steps so far leave it."""

    profile: Profile | None = None  # None: there is no fleet
    plan: Plan | None = None
    replicas: Mapping[str, int] = field(default_factory=dict)  # by lane

    @property
    def cost_usd_per_hour(self) -> float:
        """What its replicas cost at the prices of its plan."""
        if self.plan is None or self.profile is None:
            return 0.0
        profile, counts = self.profile, self.replicas
        return sum(
            lane_cost_usd_per_hour(profile.lane(lane.lane), lane, counts.get(lane.lane, 0)) for lane in self.plan.lanes
        )

    def with_replicas(self, lane: str, replicas: int) -> FleetForecast:
        """Return it with a lane at this many replicas."""
        return replace(self, replicas={**self.replicas, lane: replicas})

    def planned(self, lane: str) -> int:
        """Return how many replicas the plan gives a lane; 0 for one it has not."""
        return next((p.replicas for p in self.plan.lanes if p.lane == lane), 0) if self.plan else 0


def forecast_now(site: Site, fleet: str, seen: FleetStatus | None) -> FleetForecast:
    """Return a fleet as it is wanted now."""
    desired = site.store.fleet(fleet)
    if desired is None:
        return FleetForecast()
    wanted = {lane.name: lane.wanted for lane in seen.lanes} if seen is not None else {}
    counts = {
        each.lane: desired.overrides.replicas.get(each.lane, wanted.get(each.lane, each.replicas))
        for each in desired.plan.lanes
    }
    return FleetForecast(profile=desired.profile, plan=desired.plan, replicas=counts)


def forecast_planned(profile: Profile, plan: Plan) -> FleetForecast:
    """Return a fleet as a plan would bring it up."""
    return FleetForecast(profile=profile, plan=plan, replicas={lane.lane: lane.replicas for lane in plan.lanes})


def forecast_lanes(site: Site, fleet: FleetForecast) -> tuple[LaneForecast, ...]:
    """Return what the planner forecasts of every lane at its replicas."""
    return tuple(_forecast_lane(site, fleet, lane, count) for lane, count in fleet.replicas.items())


def cap_of(run: RunbookRun) -> float | None:
    """Return what the fleet may cost an hour by the runbook and by whoever runs it: the lower of the two."""
    caps = [c for c in (run.runbook.max_cost_usd_per_hour, run.max_cost_usd_per_hour) if c is not None]
    return min(caps, default=None)


def _forecast_lane(site: Site, fleet: FleetForecast, lane: str, count: int) -> LaneForecast:
    if fleet.plan is None or fleet.profile is None:
        return LaneForecast(lane=lane, replicas=count, reason="nothing is planned")
    if count == 0:
        return LaneForecast(lane=lane, replicas=0, reason="no replicas")
    found = next((each for each in fleet.plan.lanes if each.lane == lane), None)
    if found is None:
        return LaneForecast(lane=lane, replicas=count, reason="the profile has no such lane")
    if found.replicas != count:
        try:
            found = _planned_at(site, fleet.profile, lane, count)
        except FleetctlError as error:
            return LaneForecast(lane=lane, replicas=count, reason=error.message.splitlines()[0])
    if found.offering.is_on_cpu:
        return LaneForecast(lane=lane, replicas=count, reason="nothing is forecast of a CPU")
    forecast = found.forecast
    return LaneForecast(lane=lane, replicas=count, ttft_p99_s=forecast.ttft_p99_s, itl_p99_s=forecast.itl_p99_s)


def _planned_at(site: Site, profile: Profile, lane: str, count: int) -> LanePlan:
    """Return the planner's answer for a lane that has exactly so many replicas. Raises InfeasiblePlanError."""
    lanes = tuple(
        replace(each, replicas=ReplicaBounds(min=count, max=count)) if each.name == lane else each
        for each in profile.lanes
    )
    capacity = replace(profile.capacity, max_cost_usd_per_hour=None)
    plan = os_signals.run(plan_profile(site, replace(profile, lanes=lanes, capacity=capacity)))
    return plan.lane(lane)

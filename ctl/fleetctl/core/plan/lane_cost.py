"""What a lane costs at a number of replicas, by its plan."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.model.profile import SpotPolicy

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import LaneSpec


def lane_cost_usd_per_hour(spec: LaneSpec, plan: LanePlan, replicas: int) -> float:
    """Return the price of so many replicas: the on-demand baseline first, then spot where the lane may be on it.

    It is what the controller reckons with when it launches them; a spot replica that falls back costs more.
    """
    if plan.spot_offering is None or spec.spot is SpotPolicy.NONE:
        return machines_usd_per_hour(plan, on_demand=replicas, spot=0)
    on_demand = min(replicas, plan.on_demand)
    return machines_usd_per_hour(plan, on_demand=on_demand, spot=replicas - on_demand)


def machines_usd_per_hour(plan: LanePlan, *, on_demand: int, spot: int) -> float:
    """Return the price of the machines under so many replicas of each market, at the plan's prices."""
    machines = plan.bought(on_demand=on_demand, spot=spot)
    return plan.node_count * math.fsum(each.machines * each.offering.price_usd_per_hour for each in machines)

"""What a lane costs at a number of replicas, by its plan."""

from __future__ import annotations

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
        return replicas * plan.node_count * plan.offering.price_usd_per_hour
    on_demand = min(replicas, plan.on_demand)
    spot_usd = (replicas - on_demand) * plan.spot_offering.price_usd_per_hour
    return plan.node_count * (on_demand * plan.offering.price_usd_per_hour + spot_usd)

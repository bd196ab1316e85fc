"""What one replica of a lane carries, and how many a demand needs: by the plan."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.model.plan import Constraint

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan

# Where the plan was not set by load, a replica is counted on for this share of its knee (the published fleet's 70 %).
_KNEE_SHARE = 0.7


def rps_per_replica(plan: LanePlan) -> float:
    """Return the lane demand one replica carries inside the SLO, by the plan's own forecast."""
    planned = plan.rps / max(1, plan.replicas)
    if plan.constraint is not Constraint.MINIMUM:
        return planned
    return max(planned, _KNEE_SHARE * plan.forecast.knee_rps / max(1, plan.replicas))


def replicas_needed(plan: LanePlan, offered_rps: float) -> int:
    """Return how many replicas carry this demand inside the SLO; 0 without demand."""
    each = rps_per_replica(plan)
    if offered_rps <= 0:
        return 0
    # Rates are measured: a demand of exactly n replicas must not become n + 1 by the last bit.
    return math.ceil(offered_rps / each - 1e-6) if each > 0 else max(1, plan.replicas)

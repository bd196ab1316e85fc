"""How many replicas, which settings, at what cost, with which forecast."""

from fleetctl.core.plan.fleet import make_plan
from fleetctl.core.plan.lane_shares import RequestHints, TracedRequest

__all__ = ["RequestHints", "TracedRequest", "make_plan"]

"""How many replicas, which settings, at what cost, with which forecast."""

from fleetctl.core.plan.fleet import FleetSearch, make_plan, search_fleet
from fleetctl.core.plan.lane_shares import RequestHints, TracedRequest
from fleetctl.core.plan.proven import ProvenCount

__all__ = ["FleetSearch", "ProvenCount", "RequestHints", "TracedRequest", "make_plan", "search_fleet"]

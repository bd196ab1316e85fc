"""How many replicas, which settings, at what cost, with which forecast."""

from fleetctl.core.plan.fleet import FleetSearch, make_plan, search_fleet
from fleetctl.core.plan.lane_traffic import lanes_of
from fleetctl.core.plan.prefill_only import NOTHING_GIVEN, RuleInputs
from fleetctl.core.plan.proven import ProvenCount
from fleetctl.core.plan.traced import RequestHints, TracedRequest, TracedRequests

__all__ = [
    "NOTHING_GIVEN", "FleetSearch", "ProvenCount", "RequestHints", "RuleInputs", "TracedRequest", "TracedRequests", "lanes_of",
    "make_plan", "search_fleet",
]  # fmt: skip

"""How many replicas, which settings, at what cost, with which forecast."""

from fleetctl.core.plan.fleet import make_plan
from fleetctl.core.plan.workload import TraceRow

__all__ = ["TraceRow", "make_plan"]

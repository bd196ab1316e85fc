"""Looks at a fleet and says why its users wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.diagnosis.evidence import FleetEvidence
from fleetctl.core.diagnosis.tree import diagnose as diagnose_evidence
from fleetctl.errors import UnavailableError
from fleetctl.model.request_trace import TraceQuery
from fleetctl.operations.fleets import status
from fleetctl.operations.lookup import known_fleet, known_lane

if TYPE_CHECKING:
    from fleetctl.core.diagnosis.findings import Diagnosis
    from fleetctl.model.request_trace import RequestTraces
    from fleetctl.operations.site import Site

_REQUESTS_MAX = 5000
_ENTRIES_MAX = 200
_RUNNING_MAX = 1000


def diagnose(site: Site, fleet: str, *, lane: str = "") -> Diagnosis:
    """Return what is wrong with a fleet, or with one lane of it, the first cause first. Raises NotFoundError."""
    desired = known_fleet(site, fleet)
    if lane:
        known_lane(desired, lane)
    traces = _traces_now(site, fleet)
    evidence = FleetEvidence(
        desired=desired,
        status=status(site, fleet),
        requests=traces.requests if traces is not None else (),
        running=traces.running if traces is not None else (),
        journal=site.store.journal(fleet, limit=_ENTRIES_MAX),
    )
    return diagnose_evidence(evidence, lane=lane)


def _traces_now(site: Site, fleet: str) -> RequestTraces | None:
    """Return what the gateway remembers; None where it does not answer, which is a cause by itself."""
    try:
        return site.host.request_traces(fleet, TraceQuery(limit=_REQUESTS_MAX, running=_RUNNING_MAX))
    except UnavailableError:
        return None

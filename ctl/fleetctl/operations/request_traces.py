"""What the gateway remembers of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.diagnosis.request import RequestExplanation, explain_early, explain_request
from fleetctl.errors import NotFoundError
from fleetctl.model.request_trace import RequestTraces, TraceQuery
from fleetctl.operations.lookup import known_fleet, known_lane

if TYPE_CHECKING:
    from fleetctl.model.workflow_trace import WorkflowTrace
    from fleetctl.operations.site import Site


def request_traces(site: Site, fleet: str, query: TraceQuery) -> RequestTraces:
    """Return the requests somebody asks for, in the order they ended.

    Raises UnavailableError without a gateway; NotFoundError for a lane that nothing is remembered of, and that there is not.
    """
    found = site.host.request_traces(fleet, query)
    if query.lane and not found.requests:
        known_lane(known_fleet(site, fleet), query.lane)
    return found


def why_workflow(site: Site, fleet: str, id_: str) -> tuple[WorkflowTrace, ...]:
    """Return the workflows of an id, running or over; several where it was used again, or by several clients.

    Raises NotFoundError, UnavailableError.
    """
    found = request_traces(site, fleet, TraceQuery(id=id_)).workflows
    if not found:
        hint = "workflows are joined by x-fleetctl-workflow or traceparent where the profile has a section `workflows`"
        raise NotFoundError(f"the gateway of fleet {fleet!r} remembers no workflow {id_!r}", hint=hint)
    return found


def why_request(site: Site, fleet: str, id_: str) -> tuple[RequestExplanation, ...]:
    """Return why the requests of an id took as long as they did; several where a client uses one again.

    Those that were refused before a lane was chosen come last.

    Raises NotFoundError, UnavailableError.
    """
    found = request_traces(site, fleet, TraceQuery(id=id_))
    if not (found.requests or found.early):
        hint = f"the last requests of every lane: fleetctl requests {fleet}; the late ones: fleetctl requests {fleet} --missed"
        raise NotFoundError(f"the gateway of fleet {fleet!r} remembers no request {id_!r}", hint=hint)
    return (*map(explain_request, found.requests), *map(explain_early, found.early))

"""`fleetctl why`."""

from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.absence import read_fleet
from fleetctl.cli.diagnosis_views import request_view
from fleetctl.cli.journal_views import why_view
from fleetctl.cli.options import FleetOption, Output
from fleetctl.cli.output import Format, View, emit
from fleetctl.cli.progress import Progress
from fleetctl.cli.site import site_of
from fleetctl.cli.workflow_view import workflow_view
from fleetctl.errors import NotFoundError, UnavailableError
from fleetctl.model.request_trace import TraceQuery
from fleetctl.operations import fleets
from fleetctl.operations.request_traces import request_traces, why_request, why_workflow
from fleetctl.operations.site import Site

# What a client calls a request or a workflow may be a lane's name, or a replica's.
_REQUEST, _WORKFLOW = "request/", "workflow/"


def why(
    ctx: typer.Context,
    subject: Annotated[
        str,
        typer.Argument(
            metavar="LANE|REPLICA|WORKFLOW-ID|REQUEST-ID",
            help="Whose decisions; left out: the whole fleet's. Or a request, by its x-request-id or its trace id, or a "
            "workflow, by its x-fleetctl-workflow or its trace id. Where a name is several: lane/NAME, replica/ID, node/ID, "
            "workflow/ID, request/ID.",
            autocompletion=suggestions.lanes_and_replicas,
        ),
    ] = "",
    fleet: FleetOption = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many decisions.")] = 10,
    output: Output = Format.TABLE,
) -> None:
    """Explain a lane or a replica: its state, the plan's grounds, the latest decisions and the figures they stood on.

    Of a request: how it ended, and where its time went: the queue, the prompts before it, its replicas, its gaps.
    Of a workflow: its calls as a tree, and the chain of them that made its time.
    """
    site = site_of(ctx)
    name = read_fleet(site, fleet)
    if subject.startswith(_WORKFLOW):
        emit(workflow_view(why_workflow(site, name, subject.removeprefix(_WORKFLOW)), now=site.clock.now()), output)
        return
    if subject.startswith(_REQUEST):
        emit(request_view(why_request(site, name, subject.removeprefix(_REQUEST)), now=site.clock.now()), output)
        return
    try:
        view = why_view(fleets.why(site, name, subject, limit=limit), now=site.clock.now())
    except NotFoundError as unknown:
        view = _request_view(site, name, subject, unknown)
    else:
        _note_request(site, name, subject)
    emit(view, output)


def _request_view(site: Site, fleet: str, subject: str, unknown: NotFoundError) -> View:
    """Return the workflow or the request of this id; where there is none, what the name was not found as before."""
    try:
        if workflows := request_traces(site, fleet, TraceQuery(id=subject)).workflows:
            return workflow_view(workflows, now=site.clock.now())
        return request_view(why_request(site, fleet, subject), now=site.clock.now())
    except NotFoundError as forgotten:
        message = f"{unknown.message}; {forgotten.message}, and no workflow of that id"
        raise NotFoundError(message, hint=unknown.hint) from None
    except UnavailableError:
        raise unknown from None


def _note_request(site: Site, fleet: str, subject: str) -> None:
    """Say that a request or a workflow has this name too. Clients choose their ids, so that is no error: the fleet's own comes first."""
    try:
        found = request_traces(site, fleet, TraceQuery(id=subject, limit=1)) if subject else None
    except UnavailableError:
        return  # without a gateway nothing is remembered of requests
    if found is not None and found.workflows:
        Progress().caution(f"a workflow has the id {subject!r} too: fleetctl why {_WORKFLOW}{subject}")
    if found is not None and (found.requests or found.early):
        Progress().caution(f"a request has the id {subject!r} too: fleetctl why {_REQUEST}{subject}")

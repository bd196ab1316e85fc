"""`fleetctl requests`."""

from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.absence import read_fleet
from fleetctl.cli.diagnosis_views import requests_view
from fleetctl.cli.options import Fleet, Output
from fleetctl.cli.output import Format, emit
from fleetctl.cli.site import site_of
from fleetctl.model.request_trace import TraceQuery
from fleetctl.operations.request_traces import request_traces


def requests(  # one parameter an option
    ctx: typer.Context,
    fleet: Fleet = "",
    *,
    lane: Annotated[
        str, typer.Option("--lane", "-l", metavar="LANE", help="Only this lane's.", autocompletion=suggestions.lanes)
    ] = "",
    missed: Annotated[
        bool, typer.Option("--missed", help="Only those that missed their SLO, refusals among them.")
    ] = False,
    client: Annotated[str, typer.Option("--client", metavar="CLIENT", help="Only this client's, as shown here.")] = "",
    workflow: Annotated[
        str,
        typer.Option("--workflow", metavar="ID", help="Only the calls of this workflow; `why ID` draws their tree."),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many, the newest.")] = 50,
    output: Output = Format.TABLE,
) -> None:
    """List the last requests, as the gateway remembers them, oldest first; `why ID` explains one.

    Those that missed their SLO, were refused or were slowest are remembered for longer. Nothing of their text is kept.
    """
    site = site_of(ctx)
    query = TraceQuery(lane=lane, is_missed=missed, limit=limit, client=client, workflow=workflow)
    found = request_traces(site, read_fleet(site, fleet), query)
    emit(requests_view(found, now=site.clock.now(), of_workflow=bool(workflow)), output)

"""`fleetctl why`."""

from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.absence import read_fleet
from fleetctl.cli.journal_views import why_view
from fleetctl.cli.options import FleetOption, Output
from fleetctl.cli.output import Format, emit
from fleetctl.cli.site import site_of
from fleetctl.operations import fleets


def why(
    ctx: typer.Context,
    subject: Annotated[
        str,
        typer.Argument(
            metavar="LANE|REPLICA",
            help="Whose decisions; left out: the whole fleet's.",
            autocompletion=suggestions.lanes_and_replicas,
        ),
    ] = "",
    fleet: FleetOption = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many decisions.")] = 10,
    output: Output = Format.TABLE,
) -> None:
    """Explain a lane or a replica: its state, the plan's grounds, the latest decisions and the figures they stood on."""
    site = site_of(ctx)
    found = fleets.why(site, read_fleet(site, fleet), subject, limit=limit)
    emit(why_view(found, now=site.clock.now()), output)

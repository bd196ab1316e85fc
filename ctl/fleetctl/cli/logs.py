"""`fleetctl logs`."""

from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.options import FleetOption
from fleetctl.cli.output import write
from fleetctl.cli.site import site_of
from fleetctl.operations import logs as operation
from fleetctl.operations.lookup import chosen_fleet
from fleetctl.printable import printable


def logs(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="REPLICA|gateway|controller",
            help="Whose log.",
            autocompletion=suggestions.processes,
        ),
    ] = "controller",
    *,
    fleet: FleetOption = "",
    tail: Annotated[int, typer.Option("--tail", "-n", min=0, max=10_000, help="How many lines, the last.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Go on with what is written, until Ctrl-C.")] = False,
) -> None:
    """Show what a replica's engine, the gateway or the controller has written, the newest last.

    A replica that has failed keeps its log. What would move the cursor or colour the terminal is
    written as an escape.
    """
    site = site_of(ctx)
    read = operation.log_of(site, chosen_fleet(site, fleet), name)
    text, end = operation.last_lines(read, tail)
    write(printable(text.expandtabs(), keeps_lines=True))
    if follow:
        for piece in operation.follow(site, read, end):
            write(printable(piece.expandtabs(), keeps_lines=True))

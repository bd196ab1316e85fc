"""`fleetctl logs`."""

from datetime import timedelta
from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.options import FleetLongOption
from fleetctl.cli.output import write
from fleetctl.cli.progress import Progress
from fleetctl.cli.site import site_of
from fleetctl.cli.watching import has_no_reader
from fleetctl.operations import logs as operation
from fleetctl.operations.lookup import chosen_fleet
from fleetctl.printable import printable
from fleetctl.units import parse_duration_s

_LINES = 100


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
    fleet: FleetLongOption = "",
    tail: Annotated[
        int | None,
        typer.Option("--tail", "-n", min=0, max=operation.LINES_MAX, help="How many lines, the last; 100 by itself."),
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="DURATION", help="Only what was written in the last 10m, 2h ...")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", "-F", help="Go on with what is written, until Ctrl-C.")
    ] = False,
) -> None:
    """Show what a replica's engine, the gateway or the controller has written, the newest last.

    A replica that has ended keeps its log for 7 days, within the newest 100 files and 64 MiB of its fleet.
    Of a very long line the middle is left out. What would move the cursor or colour the terminal is
    written as an escape.
    """
    site = site_of(ctx)
    earliest = site.clock.now() - timedelta(seconds=parse_duration_s(since)) if since else None
    chosen = chosen_fleet(site, fleet)
    read = operation.log_of(site, chosen, name)
    shown_max = operation.LINES_MAX if since else _LINES
    text, end = operation.last_lines(read, tail if tail is not None else shown_max)
    if earliest is not None:
        text, has_times = operation.lines_since(text, earliest)
        if text and not has_times:
            Progress().caution(f"the log of {name} says no times; --since leaves all of it")
    write(printable(text.expandtabs(), keeps_lines=True))
    if not end and (why := operation.why_silent(site, chosen, name)):
        Progress().caution(printable(why))
    if follow:
        for piece in operation.follow(site, read, end, is_over=has_no_reader):
            write(printable(piece.expandtabs(), keeps_lines=True))

"""`fleetctl events`."""

from datetime import datetime
from typing import Annotated

import typer

from fleetctl.cli.absence import read_fleet
from fleetctl.cli.journal_views import events_view, plain_line
from fleetctl.cli.options import Fleet, Output
from fleetctl.cli.output import Format, View, emit, json_line, text_of, write
from fleetctl.cli.site import site_of
from fleetctl.model.journal import JournalEntry
from fleetctl.operations import fleets

_POLL_S = 0.5
_BATCH = 1000


def events(
    ctx: typer.Context,
    fleet: Fleet = "",
    subject: Annotated[
        str,
        typer.Option(
            "--subject", "-s", help="Only this lane, replica or 'gateway'; lane/NAME where a name is several."
        ),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="How many, the newest.")] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", "-F", help="Go on with what happens next, until Ctrl-C.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show what happened, oldest first: decisions, notices, what people asked for, failures.

    With --follow, -o json prints one object per line.
    """
    # A fleet that is gone keeps its journal.
    site = site_of(ctx)
    name = fleet if fleets.has_only_journal(site, fleet) else read_fleet(site, fleet)
    entries = fleets.events(site, name, limit=limit, subject=subject)
    if not follow:
        emit(events_view(entries, now=site.clock.now()), output)
        return
    after = 0
    while True:
        for entry in entries:
            write(_line(entry, output, site.clock.now()))
            after = entry.seq
        site.clock.sleep_blocking(_POLL_S)
        entries = fleets.events(site, name, after=after, limit=_BATCH, subject=subject)


def _line(entry: JournalEntry, output: Format, now: datetime) -> str:
    match output:
        case Format.JSON:
            return json_line(View(value=entry))
        case Format.YAML:
            return text_of(View(value=[entry]), output)
        case Format.NAME:
            return f"{entry.seq}\n"
        case Format.TABLE | Format.WIDE:
            return plain_line(entry, now=now) + "\n"

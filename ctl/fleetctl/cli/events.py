"""`fleetctl events`."""

from datetime import datetime, timedelta
from itertools import chain
from typing import Annotated

import typer

from fleetctl.cli.absence import read_fleet
from fleetctl.cli.journal_views import events_view, plain_line
from fleetctl.cli.options import Fleet, Output
from fleetctl.cli.output import Format, View, emit, json_line, text_of, write
from fleetctl.cli.progress import Progress
from fleetctl.cli.site import site_of
from fleetctl.cli.watching import has_no_reader
from fleetctl.errors import NotFoundError
from fleetctl.model.action import EntryKind
from fleetctl.model.journal import JournalEntry
from fleetctl.operations import fleets
from fleetctl.units import parse_duration_s


def events(
    ctx: typer.Context,
    fleet: Fleet = "",
    *,
    subject: Annotated[
        str,
        typer.Option(
            "--subject", "-s", help="Only this lane, replica or 'gateway'; lane/NAME where a name is several."
        ),
    ] = "",
    kind: Annotated[
        list[EntryKind] | None, typer.Option("--kind", "-k", help="Only of this kind; may be given several times.")
    ] = None,
    since: Annotated[str, typer.Option("--since", metavar="DURATION", help="Only the last of it: 10m, 24h, 7d.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="How many, the newest.")] = 50,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", "-F", help="Go on with what happens next, until Ctrl-C or the fleet's end."),
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show what happened, oldest first: decisions, notices, what people asked for, failures.

    With --follow, -o json prints one object per line; a controller or gateway that is restarted makes no difference. It ends
    with exit code 0 when the fleet is gone, and with 8 where it was gone before.
    """
    # A fleet that is gone keeps its journal.
    site = site_of(ctx)
    is_gone = fleets.has_only_journal(site, fleet)
    name = fleet if is_gone else read_fleet(site, fleet)
    start = site.clock.now() - timedelta(seconds=parse_duration_s(since)) if since else None
    query = fleets.EventQuery(subject=subject, kinds=frozenset(kind or ()), since=start)
    newest = site.store.journal(name, limit=1)
    entries = fleets.events(site, name, query, limit=limit)
    if not follow:
        emit(events_view(entries, now=site.clock.now()), output)
        return
    after = max((entry.seq for entry in (*newest, *entries)), default=0)
    later = fleets.follow_events(site, name, query, after=after, is_over=has_no_reader)
    for entry in entries if is_gone else chain(entries, later):
        write(_line(entry, output, site.clock.now()))
    if is_gone:
        raise NotFoundError(f"fleet {name!r} is gone, and nothing more happens to it", hint="its journal is above")
    Progress().note(f"fleet {name} is gone")


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

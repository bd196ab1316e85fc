"""`fleetctl state show`, `unlock` and `migrate`."""

import os
from datetime import datetime
from typing import Annotated

import typer

from fleetctl.cli.options import Output, Quiet, Yes
from fleetctl.cli.output import Format, View, emit, lines, section
from fleetctl.cli.progress import Progress, confirm
from fleetctl.cli.site import site_of
from fleetctl.operations import states
from fleetctl.operations.states import RecordedFleet, StateRecords
from fleetctl.views.figures import format_age
from fleetctl.views.table import cell, text_table

_COLUMNS = "FLEET PHASE >REPLICAS >INTENTS >EPOCH HOLDER >SEEN >COMMITS >BYTES"


def show(ctx: typer.Context, *, output: Output = Format.TABLE) -> None:
    """Show where fleets are on record, and of each fleet who holds its lease and what is stored."""
    site = site_of(ctx)
    emit(_view(states.state_records(site), site.clock.now()), output)


def unlock(
    ctx: typer.Context,
    fleet: Annotated[str, typer.Argument(help="The fleet.", metavar="FLEET")],
    *,
    yes: Yes = False,
    quiet: Quiet = False,
) -> None:
    """End the lease on a fleet of a shared state, so that the next controller need not wait for 30 s of silence.

    A controller that lives all the same is fenced: it ends, and writes nothing more.
    """
    site, progress = site_of(ctx), Progress(quiet=quiet)
    if not confirm(f"End whatever lease there is on {fleet}?", yes=yes):
        return
    lease = states.unlock(site, fleet)
    progress.note(f"{fleet}: the lease before epoch {lease.epoch} is over; bring a controller up: fleetctl up PROFILE")


def migrate(
    ctx: typer.Context,
    to: Annotated[
        str,
        typer.Argument(
            help="s3://BUCKET/PREFIX or kubernetes://NAMESPACE without a state yet, or `local`.", metavar="PLACE"
        ),
    ],
    *,
    yes: Yes = False,
    quiet: Quiet = False,
) -> None:
    """Move the state to S3 or into a cluster, or back to this machine. Refused while a fleet's controller or gateway lives.

    Nodes stay whose they are. The state it came from is marked as moved, a file set aside as state.db.moved-TIME.
    """
    site, progress = site_of(ctx), Progress(quiet=quiet)
    if not confirm(f"Move the state from {site.store.location} to {to}?", yes=yes):
        return
    count = states.migrate(site, to, os.environ)
    then = "unset FLEETCTL_STATE" if to == "local" else f"export FLEETCTL_STATE={to}"
    progress.note(f"{count} rows moved; from now on, in every shell and crontab: {then}")


def _view(found: StateRecords, now: datetime) -> View:
    sections = [lines(cell(f"State  {found.location}"), cell(f"Owner  {found.owner or '-'}"))]
    if found.fleets:
        sections.append(section(text_table(_COLUMNS, [_cells(each, now) for each in found.fleets])))
    return View(value=found, names=tuple(each.fleet for each in found.fleets), sections=tuple(sections))


def _cells(each: RecordedFleet, now: datetime) -> tuple[str, ...]:
    seen = format_age(each.last_seen_at, now) if each.last_seen_at is not None else "-"
    return (
        each.fleet,
        each.phase or "gone",
        str(each.replicas),
        str(each.open_intents),
        str(each.epoch or "-"),
        f"{each.holder} (released)" if each.is_released and each.holder else each.holder or "-",
        seen,
        "-" if each.commits is None else str(each.commits),
        "-" if each.stored_bytes is None else str(each.stored_bytes),
    )

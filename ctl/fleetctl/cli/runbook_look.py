"""`fleetctl runbook list`, `show`, `lint` and `history`."""

import sys
from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.options import Fleet, Output
from fleetctl.cli.output import Format, View, emit, lines
from fleetctl.cli.progress import Progress, note_cautions
from fleetctl.cli.runbook_views import history_view, list_view, run_view, show_view
from fleetctl.cli.site import site_of
from fleetctl.errors import ConfigError
from fleetctl.printable import printable
from fleetctl.runbooks.answers import LintAnswer
from fleetctl.runbooks.known_runbooks import (
    find_runbook,
    find_runbook_reading,
    lint_cautions,
    lint_faults,
    list_library,
)
from fleetctl.runbooks.run_log import find_run, runs_of
from fleetctl.units import format_count

RunbookName = Annotated[
    str,
    typer.Argument(metavar="RUNBOOK", help="A runbook's file, or its name.", autocompletion=suggestions.runbooks),
]


def list_runbooks(ctx: typer.Context, *, output: Output = Format.TABLE) -> None:
    """List the runbooks there are: those in your own directory (~/.config/fleetctl/profiles/runbooks), then the packaged ones."""
    emit(list_view(list_library(), now=site_of(ctx).clock.now()), output)


def show(ctx: typer.Context, runbook: RunbookName, *, output: Output = Format.TABLE) -> None:
    """Show what a runbook does: its steps, parameters, limits, its schedule and its next run."""
    emit(show_view(find_runbook(runbook), now=site_of(ctx).clock.now()), output)


def lint(runbook: RunbookName, *, output: Output = Format.TABLE) -> None:
    """Check a runbook: every fault with its file, line and key; exit 3 where there is one.

    Expressions and the profiles of `up` are looked at once the rest is in order.
    """
    reading = find_runbook_reading(runbook)
    faults = lint_faults(reading)
    text = "" if faults else f"{reading.source.name}: ok"
    note_cautions(lint_cautions(reading), Progress())
    name = reading.runbook.name if reading.runbook else ""
    value = LintAnswer(file=reading.source.name, runbook=name, faults=faults)
    emit(View(value=value, names=(name,) if name else (), sections=(lines(text),) if text else ()), output)
    if not faults:
        return
    if output in (Format.TABLE, Format.WIDE):
        sys.stderr.write("error:\n" + "".join(f"{printable(str(fault))}\n" for fault in faults))
        sys.stderr.write(f"{format_count(len(faults), 'fault')} in {printable(reading.source.name)}\n")
        if reading.runbook is None:
            sys.stderr.write("hint: expressions and profiles are looked at once these are mended\n")
    raise typer.Exit(ConfigError.exit_code)


def history(
    ctx: typer.Context,
    fleet: Fleet = "",
    *,
    run: Annotated[
        str,
        typer.Option("--run", metavar="RUN", help="This run alone, with its steps.", autocompletion=suggestions.runs),
    ] = "",
    runbook: Annotated[str, typer.Option("--runbook", metavar="NAME", help="The runs of this runbook alone.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=2000, help="So many of the newest.")] = 20,
    output: Output = Format.TABLE,
) -> None:
    """Show the runs on a fleet, or on all: what came of them, how long they took, who ran them. It outlives the fleet."""
    site = site_of(ctx)
    if run:
        emit(run_view(find_run(site.store, run, fleet=fleet)), output)
        return
    found = [each for each in runs_of(site.store, fleet or None) if runbook in ("", each.runbook.name)]
    emit(history_view(found[-limit:], now=site.clock.now()), output)

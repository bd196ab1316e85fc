"""`fleetctl top`."""

import os
import shutil
import signal
import sys
from dataclasses import replace
from typing import Annotated, TextIO

import typer

from fleetctl import os_signals
from fleetctl.cli.absence import read_fleet
from fleetctl.cli.main import EXIT_BUG
from fleetctl.cli.options import Fleet
from fleetctl.cli.output import write
from fleetctl.cli.site import site_of
from fleetctl.errors import ConfigError
from fleetctl.operations import fleets
from fleetctl.operations.site import Site

_PIPED_COLUMNS = 120  # where there is no terminal to ask
_COLUMNS_MIN = 40


def top(
    ctx: typer.Context,
    fleet: Fleet = "",
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Print one frame and exit; so it is where there is no terminal.")
    ] = False,
    readonly: Annotated[bool, typer.Option("--readonly", help="Look only: no key changes anything.")] = False,
    is_ascii: Annotated[bool, typer.Option("--ascii", help="Plain characters only.")] = False,
    width: Annotated[
        int | None, typer.Option("--width", min=_COLUMNS_MIN, max=1000, help="Columns of the one frame.")
    ] = None,
) -> None:
    """Watch a fleet live: lanes against their SLOs, replicas, decisions and why. `?` shows the keys, `q` quits.

    Quitting leaves the fleet as it is.
    """
    site = site_of(ctx)
    name = read_fleet(site, fleet)
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        from fleetctl.tui.frame import once as frame

        columns = width or shutil.get_terminal_size((_PIPED_COLUMNS, 24)).columns
        write(
            frame(
                fleets.status(site, name),
                width=max(columns, _COLUMNS_MIN),
                is_ascii=is_ascii or not _is_unicode(sys.stdout),
            )
        )
        return
    open_tui(site, name, readonly=readonly, is_ascii=is_ascii)


def _is_unicode(stream: TextIO) -> bool:
    """Whether a stream takes every character there is."""
    return (stream.encoding or "ascii").lower().replace("-", "").startswith("utf")


def open_tui(site: Site, fleet: str, *, readonly: bool = False, is_ascii: bool = False) -> None:
    """Show the TUI on a fleet until it is quit. Raises ConfigError on a terminal that cannot show it."""
    if os.environ.get("TERM", "dumb") == "dumb":
        raise ConfigError("this terminal (TERM=dumb) cannot show the TUI", hint="pass --once, or set TERM")
    from fleetctl.tui.app import FleetApp
    from fleetctl.tui.live import LiveActions, LiveSource

    site = replace(site, tell=lambda _: None)  # the screen is the TUI's
    app = FleetApp(
        LiveSource(site, fleet),
        LiveActions(site, fleet),
        clock=site.clock,
        is_readonly=readonly or site.is_readonly,
        is_ascii=is_ascii,
    )
    # A request to end ends Textual too: the terminal is given back as it was.
    with os_signals.taking({signal.SIGTERM: SystemExit, signal.SIGHUP: SystemExit}):
        os_signals.run(app.run_async())
    if app.return_code:
        raise typer.Exit(EXIT_BUG)  # Textual has shown the traceback

"""`fleetctl runbook install-cron`."""

import os
from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.options import DryRun, FleetLongOption, Quiet
from fleetctl.cli.output import write
from fleetctl.cli.progress import Progress
from fleetctl.cli.site import site_of
from fleetctl.errors import ConfigError
from fleetctl.operations.lookup import chosen_fleet
from fleetctl.operations.site import Site
from fleetctl.printable import printable
from fleetctl.runbooks.install import ScheduleChange, install_in_crontab, install_units
from fleetctl.runbooks.known_runbooks import FoundRunbook, find_runbook, runbook_names
from fleetctl.runbooks.parameters import given_parameters
from fleetctl.runbooks.scheduled_command import ScheduledRunbook
from fleetctl.runbooks.unit_files import UnitFiles
from fleetctl.runbooks.user_crontab import UserCrontab
from fleetctl.schedules.time_zones import zone_label, zone_of


def install_cron(
    ctx: typer.Context,
    runbook: Annotated[
        str,
        typer.Argument(
            metavar="RUNBOOK",
            help="A runbook with a schedule: its file, or its name.",
            autocompletion=suggestions.runbooks,
        ),
    ],
    *,
    fleet: FleetLongOption = "",
    param: Annotated[list[str], typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter's value.")] = [],  # noqa: B006  # typer copies it
    systemd: Annotated[
        bool, typer.Option("--systemd", help="Write a systemd service and timer instead; the machine's, as root.")
    ] = False,
    user: Annotated[bool, typer.Option("--user", help="With --systemd: units of your own.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take out what was installed.")] = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Have cron (or systemd) run a runbook by its schedule: a marked block in your own crontab, shown as a diff.

    A second time changes nothing; lines of others stay as they are. Every ten minutes it is looked for runs that were
    cut, or missed where the runbook makes up for those. The fleet, the interpreter and the environment are written out:
    cron knows none of them. Under the block's command nothing is printed while all is well, so MAILTO gets failures alone.
    """
    if user and not systemd:
        raise ConfigError("--user goes with --systemd", hint="your crontab is your own already")
    site = site_of(ctx)
    found = find_runbook(runbook)
    book = _book(site, found, runbook, fleet=fleet, parameters=param, removes=remove)
    if systemd:
        change, faults = install_units(
            site, book, UnitFiles(is_users=user), os.environ, removes=remove, dry_run=dry_run
        )
    else:
        change, faults = install_in_crontab(site, book, UserCrontab(), os.environ, removes=remove, dry_run=dry_run), ()
    _show(change, faults, book, Progress(quiet=quiet), dry_run=dry_run)


def _book(
    site: Site, found: FoundRunbook, named: str, *, fleet: str, parameters: list[str], removes: bool
) -> ScheduledRunbook:
    given = dict(text.split("=", 1) for text in parameters if "=" in text)
    if len(given) != len(parameters):
        raise ConfigError("--param gives one parameter one value", hint="write --param NAME=VALUE")
    given_parameters(found.runbook, given)  # a run by the clock has nobody to ask
    if not (fleet or found.runbook.fleet or removes):
        chosen_fleet(site)  # else each run of it would fail, at its time
    return ScheduledRunbook(
        runbook=found.runbook,
        source=named if named in runbook_names() and not os.path.exists(named) else found.file,  # noqa: PTH110  # as find_runbook
        fleet=fleet or found.runbook.fleet,
        parameters=tuple(parameters),
        since=site.clock.now().replace(microsecond=0),
    )


def _show(
    change: ScheduleChange, faults: tuple[str, ...], book: ScheduledRunbook, progress: Progress, *, dry_run: bool
) -> None:
    write(printable(change.diff(), keeps_lines=True))
    for caution in (*change.cautions, *faults):
        progress.caution(caution)
    verb = "would be changed" if dry_run else "changed"
    progress.note(f"{change.place}: {verb if change.is_change else 'nothing to change'}")
    if change.next_run_at is not None:
        at = change.next_run_at.astimezone(zone_of(book.runbook.time_zone))
        progress.note(f"next run: {at:%a %Y-%m-%d %H:%M %Z}, {zone_label(book.runbook.time_zone)}")

"""`fleetctl rollout status`, `history`, `pause`, `resume` and `undo`."""

from datetime import datetime
from typing import Annotated

import typer

from fleetctl.cli.ends import OverrideFreeze
from fleetctl.cli.options import Detach, DryRun, Fleet, Output, Quiet, Timeout, Watch, Yes
from fleetctl.cli.output import Format, OutputSection, View, emit, lines, section
from fleetctl.cli.progress import Progress, confirm
from fleetctl.cli.site import site_of
from fleetctl.cli.up import wait_ready
from fleetctl.cli.watching import show
from fleetctl.model.rollout import RolloutStatus
from fleetctl.operations import rollouts
from fleetctl.operations.lookup import chosen_fleet
from fleetctl.operations.rollouts import RevisionChange, RolloutHold
from fleetctl.units import parse_duration_s
from fleetctl.views.figures import format_clock_time
from fleetctl.views.rollouts import rollout_line, rollout_table, rollout_tone
from fleetctl.views.table import cell, text_table

_COLUMNS = "REVISION TIME BY WHY CHANGES"


def status(ctx: typer.Context, fleet: Fleet = "", *, output: Output = Format.TABLE, watch: Watch = False) -> None:
    """Show how far a fleet's newest rollout is: its phase, and each lane's new and old replicas."""
    site = site_of(ctx)
    name = chosen_fleet(site, fleet)
    show(site.clock, lambda: _status_view(rollouts.rollout_status(site, name)), output, watch=watch)


def _status_view(found: RolloutStatus) -> View:
    names = tuple(lane.lane for lane in found.lanes)
    return View(
        value=found,
        names=names,
        sections=(lines(cell(rollout_line(found), rollout_tone(found))), section(rollout_table(found))),
    )


def history(ctx: typer.Context, fleet: Fleet = "", *, output: Output = Format.TABLE) -> None:
    """Show a fleet's revisions, oldest first: when, by whom, why, and the profile's keys that each changed."""
    site = site_of(ctx)
    found = rollouts.history(site, chosen_fleet(site, fleet))
    names = tuple(str(each.number) for each in found)
    emit(View(value=list(found), names=names, sections=(_history_section(found, site.clock.now()),)), output)


def _history_section(found: tuple[RevisionChange, ...], now: datetime) -> OutputSection:
    rows = (
        (
            f"{each.number}{' *' if each.is_in_force else ''}",
            format_clock_time(each.at, now),
            each.by or "controller",
            each.why or "up",
            "; ".join(f"{change.key} {change.old or '-'} -> {change.new or '-'}" for change in each.changes),
        )
        for each in found
    )
    return section(text_table(_COLUMNS, rows))


def pause(ctx: typer.Context, fleet: Fleet = "", *, dry_run: DryRun = False, output: Output = Format.TABLE) -> None:
    """Hold a rollout where it is: new and old replicas serve on. It stays so until `resume`, or the next `up`."""
    site = site_of(ctx)
    _print(rollouts.pause(site, chosen_fleet(site, fleet), dry_run=dry_run), output, dry_run=dry_run)


def resume(ctx: typer.Context, fleet: Fleet = "", *, dry_run: DryRun = False, output: Output = Format.TABLE) -> None:
    """Let a paused rollout go on; one that failed and stayed as it was is tried again.

    A freeze, of one lane too, and shadow mode hold a rollout all the same: then that is said, and what ends it.
    """
    site = site_of(ctx)
    _print(rollouts.resume(site, chosen_fleet(site, fleet), dry_run=dry_run), output, dry_run=dry_run)


def _print(change: RolloutHold, output: Format, *, dry_run: bool) -> None:
    text = f"{change.fleet}: {_hold_text(change)}{' (dry run, nothing was changed)' if dry_run else ''}"
    emit(View(value=change, names=(change.fleet,), sections=(lines(text),)), output)


def _hold_text(change: RolloutHold) -> str:
    if change.is_paused:
        return "the rollout is paused"
    if not change.held_by:
        return "the rollout goes on"
    lifted = "its pause is lifted, and " if change.was_paused else ""
    return f"{lifted}the rollout is held still: {' and '.join(change.held_by)}; end that: {', '.join(change.commands)}"


def undo(
    ctx: typer.Context,
    fleet: Fleet = "",
    *,
    to: Annotated[
        int | None, typer.Option("--to", metavar="REVISION", help="This one; left out: the last complete one before.")
    ] = None,
    override_freeze: OverrideFreeze = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    detach: Detach = False,
    timeout: Timeout = "15m",
    quiet: Quiet = False,
) -> None:
    """Put an earlier revision's profile and plan in force again, as a new revision, and wait until that is complete."""
    timeout_s = parse_duration_s(timeout)
    site = site_of(ctx)
    name = chosen_fleet(site, fleet)
    earlier, _ = rollouts.undo(site, name, to=to, override_freeze=override_freeze, dry_run=True)
    progress = Progress(quiet=quiet)
    if dry_run:
        progress.note(f"{name} would go back to revision {earlier.number}")
        return
    if not confirm(f"Take {name} back to revision {earlier.number}?", yes=yes):
        raise typer.Exit(1)
    _, desired = rollouts.undo(site, name, to=earlier.number, override_freeze=override_freeze)
    progress.note(f"{name}: revision {earlier.number} is put in force again, as revision {desired.revision}")
    if not detach:
        with progress:
            wait_ready(site, desired, progress, timeout_s=timeout_s)

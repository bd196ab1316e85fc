"""`fleetctl drain` and `interrupt`."""

from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.options import Detach, DryRun, FleetOption, Quiet, Timeout, Yes
from fleetctl.cli.progress import Progress, confirm
from fleetctl.cli.site import site_of
from fleetctl.operations import replicas
from fleetctl.operations.lookup import chosen_fleet
from fleetctl.units import format_duration, parse_duration_s


def drain(
    ctx: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="REPLICA|NODE", help="A replica, or the node it lives on.", autocompletion=suggestions.replicas
        ),
    ],
    *,
    fleet: FleetOption = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    detach: Detach = False,
    timeout: Timeout = "5m",
    quiet: Quiet = False,
) -> None:
    """Take a replica out of rotation, let its requests finish, stop it; the controller replaces it.

    Waits until its node is gone. Ctrl-C stops the waiting, not the draining.
    """
    timeout_s = parse_duration_s(timeout)
    site = site_of(ctx)
    name = chosen_fleet(site, fleet)
    found = replicas.drain(site, name, target, dry_run=True)
    if dry_run:
        Progress(quiet=quiet).note(f"{found.id} ({found.state}) would be drained")
        return
    if not confirm(f"Drain {found.id} of {name}?", yes=yes):
        raise typer.Exit(1)
    replica = replicas.drain(site, name, target)
    with Progress(quiet=quiet) as progress:
        if detach:
            progress.note(f"{replica.id} will be drained; see: fleetctl why {replica.id} -f {name}")
            return
        try:
            for seen in replicas.follow_drain(site, name, replica.id, timeout_s=timeout_s):
                progress.update(f"{seen.id}: {seen.state}" + (f", {seen.reason}" if seen.reason else ""))
        except KeyboardInterrupt:
            progress.note(f"not waiting any longer; {replica.id} goes on draining")
            raise
        progress.note(f"{replica.id} is drained and gone")


def interrupt(
    ctx: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="REPLICA", help="A replica on a spot node, or the node.", autocompletion=suggestions.replicas
        ),
    ],
    *,
    notice: Annotated[
        str, typer.Option("--notice", metavar="DURATION", help="The warning: 120s, 30s or none.")
    ] = "120s",
    fleet: FleetOption = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Interrupt a spot node on purpose: a drill. The fleet must not fail a request over it, given a notice."""
    notice_s = 0.0 if notice == "none" else parse_duration_s(notice)
    site = site_of(ctx)
    name = chosen_fleet(site, fleet)
    warned = f"in {format_duration(notice_s)}" if notice_s else "now, without a notice"
    if not dry_run and not confirm(f"The node of {target} in {name} will be taken {warned}. Go on?", yes=yes):
        raise typer.Exit(1)
    replica = replicas.interrupt(site, name, target, notice_s=notice_s, dry_run=dry_run)
    verb = "would be" if dry_run else "will be"
    Progress(quiet=quiet).note(
        f"{replica.id} {verb} taken {warned}; see what is done about it: fleetctl why {replica.id}"
    )

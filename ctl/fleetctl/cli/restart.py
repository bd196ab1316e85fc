"""`fleetctl restart`."""

from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.ends import Force, OverrideFreeze, Reason
from fleetctl.cli.options import Detach, DryRun, FleetOption, Quiet, Timeout, Yes
from fleetctl.cli.progress import Progress, confirm
from fleetctl.cli.site import site_of
from fleetctl.model.replica import Replica
from fleetctl.operations import restarting
from fleetctl.operations.lookup import chosen_fleet
from fleetctl.operations.site import Site
from fleetctl.units import parse_duration_s


def restart(
    ctx: typer.Context,
    replica: Annotated[
        str, typer.Argument(metavar="REPLICA", help="A replica, or its node.", autocompletion=suggestions.replicas)
    ],
    *,
    reason: Reason = "",
    override_freeze: OverrideFreeze = False,
    force: Force = False,
    fleet: FleetOption = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    detach: Detach = False,
    timeout: Timeout = "15m",
    quiet: Quiet = False,
) -> None:
    """Take a replica out of rotation, let its requests finish, and start its engine anew on the node that it has.

    It is warmed and admitted again as a new one is; no node is given back, and none is ordered unless it takes longer than
    a new one would. Providers: aws. Ctrl-C stops the waiting, not the restart.
    """
    timeout_s = parse_duration_s(timeout)
    site = site_of(ctx)
    name, progress = chosen_fleet(site, fleet), Progress(quiet=quiet)
    found = restarting.restart(site, name, replica, override_freeze=override_freeze, dry_run=True)
    if dry_run:
        progress.note(f"{found.id} ({found.state}) would be restarted")
        return
    alone = f" Nobody else of {found.lane} is in rotation." if restarting.serves_alone(site, found) else ""
    if not confirm(f"Restart the engine of {found.id} of {name}?{alone}", yes=yes):
        raise typer.Exit(1)
    restarting.restart(site, name, found.id, reason=reason, override_freeze=override_freeze, force=force)
    if detach:
        progress.note(f"not waiting for it; see: fleetctl events {name}")
        return
    with progress:
        _follow(site, found, progress, timeout_s=timeout_s)


def _follow(site: Site, found: Replica, progress: Progress, *, timeout_s: float) -> None:
    try:
        for seen in restarting.follow_restart(site, found, timeout_s=timeout_s):
            progress.update(f"{seen.id}: {seen.state}" + (f", {seen.reason}" if seen.reason else ""))
    except KeyboardInterrupt:
        progress.note(f"not waiting any longer; {found.id} goes on restarting")
        raise
    progress.note(f"{found.id} serves again")

"""`fleetctl drain`."""

from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.narrate import Narrator, confirm
from fleetctl.cli.options import Detach, DryRun, FleetOption, Quiet, Timeout, Yes
from fleetctl.operations import steering
from fleetctl.operations.access import chosen_fleet
from fleetctl.units import parse_duration_s


def drain(
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
    name = chosen_fleet(fleet)
    found = steering.drain(name, target, dry_run=True)
    if dry_run:
        Narrator(quiet=quiet).say(f"{found.id} ({found.state}) would be drained")
        return
    if not confirm(f"Drain {found.id} of {name}?", yes=yes):
        raise typer.Exit(1)
    replica = steering.drain(name, target)
    with Narrator(quiet=quiet) as narrator:
        if detach:
            narrator.say(f"{replica.id} will be drained; see: fleetctl why {replica.id} -f {name}")
            return
        try:
            for seen in steering.follow_drain(name, replica.id, timeout_s=timeout_s):
                narrator.progress(f"{seen.id}: {seen.state}" + (f", {seen.reason}" if seen.reason else ""))
        except KeyboardInterrupt:
            narrator.say(f"not waiting any longer; {replica.id} goes on draining")
            raise
        narrator.say(f"{replica.id} is drained and gone")

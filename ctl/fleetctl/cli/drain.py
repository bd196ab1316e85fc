"""`fleetctl drain` and `undrain`."""

from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.ends import For, Force, OverrideFreeze, Reason, UntilOption, end_of
from fleetctl.cli.loss_view import loss_view
from fleetctl.cli.options import Detach, DryRun, FleetOption, Output, Quiet, Timeout, Yes
from fleetctl.cli.output import Format, View, emit, lines
from fleetctl.cli.progress import Progress, confirm
from fleetctl.cli.site import site_of
from fleetctl.core.drains import NODE, ZONE
from fleetctl.errors import ConfigError
from fleetctl.operations import drains, replicas
from fleetctl.operations.drains import DrainOptions
from fleetctl.operations.lookup import chosen_fleet
from fleetctl.operations.site import Site
from fleetctl.units import format_count, parse_duration_s

_Target = Annotated[
    str,
    typer.Argument(
        metavar="REPLICA|node/ID|zone/NAME",
        help="A replica; or all on a node, or in a zone, which is cordoned then.",
        autocompletion=suggestions.replicas,
    ),
]
_Node = Annotated[str, typer.Option("--node", metavar="ID", help="The same as node/ID.")]
_Zone = Annotated[str, typer.Option("--zone", metavar="NAME", help="The same as zone/NAME.")]


def drain(
    ctx: typer.Context,
    target: _Target = "",
    *,
    node: _Node = "",
    zone: _Zone = "",
    now: Annotated[
        bool, typer.Option("--now", help="Of a node or zone: do not wait until others serve in their stead.")
    ] = False,
    for_: For = "",
    until: UntilOption = "",
    reason: Reason = "",
    override_freeze: OverrideFreeze = False,
    force: Force = False,
    fleet: FleetOption = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    detach: Detach = False,
    timeout: Timeout = "5m",
    quiet: Quiet = False,
) -> None:
    """Take a replica out of rotation, let its requests finish, stop it; the controller replaces it.

    A node or a zone is cordoned: nothing is launched there until `undrain` or the end that is given, and its replicas
    leave as far as others serve in their stead. Waits until they are gone. Ctrl-C stops the waiting, not the draining.
    """
    timeout_s = parse_duration_s(timeout)
    site = site_of(ctx)
    name = chosen_fleet(site, fleet)
    meant, progress = _target(target, node, zone), Progress(quiet=quiet)
    end = end_of(for_, until, site.clock.now())
    if meant.partition("/")[0] in (NODE, ZONE):
        options = DrainOptions(
            reason=reason, until=end, is_immediate=now, override_freeze=override_freeze, force=force, dry_run=dry_run
        )
        gone = _drain_all(site, name, meant, progress, options, yes=yes)
    else:
        if end is not None or now:
            raise ConfigError("--for, --until and --now are for nodes and zones", hint="a replica leaves for good")
        gone = _drain_one(
            site,
            name,
            meant,
            progress,
            reason=reason,
            override_freeze=override_freeze,
            force=force,
            yes=yes,
            dry_run=dry_run,
        )
    if dry_run:
        return
    if detach:
        progress.note(f"not waiting for it; see: fleetctl events {name}")
        return
    with progress:
        _follow(site, name, gone, progress, timeout_s=timeout_s)


def undrain(
    ctx: typer.Context,
    target: _Target = "",
    *,
    node: _Node = "",
    zone: _Zone = "",
    fleet: FleetOption = "",
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Take a drain back, or a cordon: what has not been stopped yet serves again, and says why not where it cannot."""
    site = site_of(ctx)
    found = drains.undrain(site, chosen_fleet(site, fleet), _target(target, node, zone), dry_run=dry_run)
    cordon = f"{found.target}: {'cordoned no longer' if found.was_cordoned else 'was not cordoned'}"
    each = [f"{r.id}: {'in rotation' if r.returns else 'does not come back'}; {r.reason}" for r in found.replicas]
    text = [cordon, *each] if found.target.startswith((f"{NODE}/", f"{ZONE}/")) else each
    would = ["dry run, nothing was changed"] if dry_run else []
    names = tuple(r.id for r in found.replicas if r.returns)
    emit(View(value=found, names=names, sections=(lines(*text, *would),)), output)


def _target(target: str, node: str, zone: str) -> str:
    given = [each for each in (target, node and f"{NODE}/{node}", zone and f"{ZONE}/{zone}") if each]
    if len(given) != 1:
        raise ConfigError("name one replica, node or zone", hint="fleetctl drain r3, node/ID, zone/NAME")
    return given[0]


def _drain_all(
    site: Site, fleet: str, target: str, progress: Progress, options: DrainOptions, *, yes: bool
) -> tuple[str, ...]:
    """Say what leaves, ask, and have it leave; return the replicas."""
    found = drains.drain_target(site, fleet, target, **(options | {"dry_run": True}))
    emit(loss_view(found), Format.TABLE)
    if options["dry_run"]:
        progress.note("dry run: nothing was changed")
        return ()
    if not confirm(f"Drain {target} of {fleet}, and launch nothing there?", yes=yes):
        raise typer.Exit(1)
    return drains.drain_target(site, fleet, target, **options).replicas


def _drain_one(  # the command's own options
    site: Site,
    fleet: str,
    target: str,
    progress: Progress,
    *,
    reason: str,
    override_freeze: bool,
    force: bool,
    yes: bool,
    dry_run: bool,
) -> tuple[str, ...]:
    found = replicas.drain(site, fleet, target, override_freeze=override_freeze, dry_run=True)
    if dry_run:
        progress.note(f"{found.id} ({found.state}) would be drained")
        return ()
    if not confirm(f"Drain {found.id} of {fleet}?", yes=yes):
        raise typer.Exit(1)
    return (replicas.drain(site, fleet, target, reason=reason, override_freeze=override_freeze, force=force).id,)


def _follow(site: Site, fleet: str, gone: tuple[str, ...], progress: Progress, *, timeout_s: float) -> None:
    try:
        for replica_id in gone:
            for seen in replicas.follow_drain(site, fleet, replica_id, timeout_s=timeout_s):
                progress.update(f"{seen.id}: {seen.state}" + (f", {seen.reason}" if seen.reason else ""))
    except KeyboardInterrupt:
        progress.note(f"not waiting any longer; {', '.join(gone)} go on draining")
        raise
    if len(gone) == 1:
        progress.note(f"{gone[0]} is drained and gone")
    else:
        progress.note(f"{format_count(len(gone), 'replica')} drained and gone")

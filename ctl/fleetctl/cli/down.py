"""`fleetctl down`."""

import typer

from fleetctl.cli.ends import OverrideFreeze
from fleetctl.cli.options import Detach, DryRun, Fleet, Quiet, Timeout, Yes
from fleetctl.cli.progress import Progress, confirm
from fleetctl.cli.site import site_of
from fleetctl.core.conditions import fleet_condition
from fleetctl.errors import DamagedStateError, DiskFullError
from fleetctl.operations import fleets, lifecycle, unlawful_names
from fleetctl.operations.fleet_hosts import hosted_elsewhere
from fleetctl.operations.lookup import chosen_fleet, fleet_names, known_fleet
from fleetctl.operations.orphaned_processes import (
    describe,
    end_orphaned_processes,
    end_processes,
    orphaned_processes,
    processes_of,
)
from fleetctl.operations.site import Site
from fleetctl.ports.host import OrphanedProcess
from fleetctl.printable import printable
from fleetctl.spelling import is_name
from fleetctl.units import format_count, parse_duration_s


def down(
    ctx: typer.Context,
    fleet: Fleet = "",
    *,
    override_freeze: OverrideFreeze = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    detach: Detach = False,
    timeout: Timeout = "10m",
    quiet: Quiet = False,
) -> None:
    """Take a fleet down: drain, stop, see gone; nothing is left behind. A fleet that is gone is no error.

    Works also when every process of the fleet is dead. Ctrl-C stops the waiting, not the going down.
    """
    timeout_s = parse_duration_s(timeout)
    progress = Progress(quiet=quiet)
    site = site_of(ctx)
    try:
        _take_down(
            site,
            fleet,
            progress,
            yes=yes,
            dry_run=dry_run,
            detach=detach,
            timeout_s=timeout_s,
            override_freeze=override_freeze,
        )
    except DamagedStateError as exc:
        found = orphaned_processes(site, fleet)
        if not found:
            raise
        _end(site, found, progress, why=exc.message, yes=yes, dry_run=dry_run)
        progress.note(f"the state stays as it is: {exc.hint}")
    except DiskFullError as exc:
        if dry_run:
            raise
        _end_unrecorded(site, chosen_fleet(site, fleet), progress, exc, yes=yes)


def _take_down(  # the command's own options
    site: Site,
    fleet: str,
    progress: Progress,
    *,
    yes: bool,
    dry_run: bool,
    detach: bool,
    timeout_s: float,
    override_freeze: bool,
) -> None:
    known = fleet_names(site)
    if not known or (fleet and fleet not in {*known, *map(printable, known)}):
        if left := [name for name in hosted_elsewhere(site.store) if fleet in ("", name) and name not in known]:
            _clean_up_hosts(site, left, progress, dry_run=dry_run)
            return
        found = orphaned_processes(site, fleet)
        if found:
            _end(site, found, progress, why=f"{site.store.location} knows no such fleet", yes=yes, dry_run=dry_run)
        else:
            progress.note(f"there is no fleet{f' {fleet}' if fleet else ''} in {site.store.location}; nothing to do")
        return
    name = chosen_fleet(site, fleet)
    if not is_name(name):
        _end_unlawful(site, name, progress, yes=yes, dry_run=dry_run)
        return
    seen = fleets.status(site, name)
    live = sum(lane.live for lane in seen.lanes)
    if dry_run:
        progress.note(f"{live} replicas and the gateway of {name} would be stopped")
        return
    if not confirm(f"Take down {name} with its {format_count(live, 'replica')}?", yes=yes):
        raise typer.Exit(1)
    lifecycle.down(site, name, override_freeze=override_freeze, timeout_s=timeout_s)
    if detach:
        progress.note(f"{name} is going down; see: fleetctl status {name}")
        return
    with progress:
        wait_down(site, name, progress, timeout_s=timeout_s)


def _clean_up_hosts(site: Site, fleets: list[str], progress: Progress, *, dry_run: bool) -> None:
    """End the hosts of fleets that are forgotten: whoever took them down was cut off before that."""
    for name in fleets:
        if dry_run:
            progress.note(f"{name} is gone, and what its controller ran on would be ended")
            continue
        site.host.clean_up(name)
        progress.note(f"{name} is down; nothing is left")


def _end_unlawful(site: Site, name: str, progress: Progress, *, yes: bool, dry_run: bool) -> None:
    """End a fleet that no controller can take down, as no path is made of its name."""
    desired, found = known_fleet(site, name), processes_of(site, name)
    progress.caution(
        f"no fleet may be called {name!r} any more, and no path is made of it; of it run: {describe(found)}"
    )
    if dry_run:
        return
    if not confirm(f"End its {len(found)} processes and forget it?", yes=yes):
        raise typer.Exit(1)
    unlawful_names.take_down(site, desired)
    progress.note(f"{name} is forgotten; what it may have left at {desired.profile.provider}: fleetctl gc")


def _end_unrecorded(site: Site, name: str, progress: Progress, fault: DiskFullError, *, yes: bool) -> None:
    """End a fleet's processes where its end cannot be written down. Raises DiskFullError saying what is left to do."""
    found = processes_of(site, name)
    progress.caution(f"{fault.message}, so the end of these cannot be written down: {describe(found) or 'none'}")
    # Asked also after a yes to going down: this drains nothing.
    if not confirm(f"End what runs of {name} at once?", yes=yes):
        raise fault
    end_processes(site, name)
    raise DiskFullError(
        f"{fault.message}: what ran of {name} is ended, but the state still says that it is up",
        hint=f"make room on that disk, then have it written down: fleetctl down {name}",
    )


def wait_down(site: Site, name: str, progress: Progress, *, timeout_s: float) -> None:
    """Wait until nothing of the fleet is left."""
    has_cautioned = False
    try:
        for seen in lifecycle.follow_down(site, name, timeout_s=timeout_s):
            if seen.controller_failing_since is not None and not has_cautioned:
                has_cautioned = True
                progress.caution(
                    f"{fleet_condition(seen).message}; until that ends nothing goes, and it is tried on; "
                    f"all it wrote: fleetctl logs controller --fleet {name}"
                )
            live = [r.record for r in seen.replicas if r.record.state.is_live]
            busy = sum(r.in_flight for r in seen.replicas)
            finishing = f", {busy} requests finishing" if busy else ""
            # Of a controller that fails the caution says it.
            held_up = f"; {seen.reason}" if seen.reason and not has_cautioned else ""
            progress.update(f"{name}: {len(live)} replicas left{finishing}{held_up}")
    except KeyboardInterrupt:
        progress.note(f"not waiting any longer; {name} goes on going down")
        raise
    found = orphaned_processes(site, name)
    if found:
        progress.note(f"ending what an earlier state left of {name}: {describe(found)}")
        end_orphaned_processes(site, found)
    progress.note(f"{name} is down; nothing is left")


def _end(
    site: Site, found: tuple[OrphanedProcess, ...], progress: Progress, *, why: str, yes: bool, dry_run: bool
) -> None:
    """End processes whose state is gone: nobody else can say any more what they were for."""
    progress.caution(f"{why}, and these run on it: {describe(found)}")
    if dry_run:
        return
    if not confirm(f"End these {len(found)} processes?", yes=yes):
        raise typer.Exit(1)
    end_orphaned_processes(site, found)
    progress.note(f"{len(found)} processes ended; nothing is left")

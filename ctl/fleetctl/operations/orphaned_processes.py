"""Finds processes that go on although their state was deleted, moved, damaged or set aside, and ends them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl import paths
from fleetctl.errors import DamagedStateError, NotFoundError, StateError, UnavailableError

if TYPE_CHECKING:
    from fleetctl.operations.site import Site
    from fleetctl.ports.host import OrphanedProcess

_END_S = 12.0
# What was starting as its starter ended is found at the next look.
_LOOKS = 3


def orphaned_processes(site: Site, fleet: str = "") -> tuple[OrphanedProcess, ...]:
    """Return what runs on this state directory and no fleet of it knows; of one fleet where it is named."""
    known, owner = _known(site)
    found = site.host.orphaned_processes(owner=owner, fleets=known)
    return tuple(each for each in found if fleet in ("", each.fleet))


def _known(site: Site) -> tuple[frozenset[str], str]:
    """Return which fleets the state knows, and whose it is; a damaged one knows nothing."""
    try:
        known = frozenset(desired.fleet for desired in site.store.fleets())
        # Asked for its owner, a state that is not there would be made.
        owner = site.store.owner if known or paths.state_db().exists() else ""
    except DamagedStateError:
        return frozenset(), ""
    return known, owner


def no_fleet(site: Site, absence: NotFoundError) -> NotFoundError:
    """Return the error that there is no such fleet; where processes of one live all the same, the one that names them."""
    found = orphaned_processes(site)
    if not found:
        return absence
    return NotFoundError(
        f"{absence.message}, and these run on it: {describe(found)}",
        hint=f"put the state back where it was, or end them: fleetctl down {found[0].fleet}",
    )


def refuse_orphaned_processes(site: Site, fleet: str) -> None:
    """Return if nothing of an earlier state goes on under this name: it holds the port, and has replicas of its own.

    Raises StateError naming the processes and how to end them.
    """
    found = orphaned_processes(site, fleet)
    if found:
        raise StateError(
            f"{fleet} has processes that the state in {site.store.location} does not know: {describe(found)}",
            hint=f"put the state back where it was, or end them: fleetctl down {fleet}",
        )


def end_orphaned_processes(site: Site, found: tuple[OrphanedProcess, ...]) -> None:
    """End them, and return when they have. Raises UnavailableError naming those that do not."""
    fleets = {each.fleet for each in found}
    left: tuple[OrphanedProcess, ...] = ()
    for _ in range(_LOOKS):
        left = site.host.end_orphaned(found, within_s=_END_S)
        found = tuple(each for each in orphaned_processes(site) if each.fleet in fleets)
        if left or not found:
            break
    _refuse_left(left)


def _refuse_left(left: tuple[OrphanedProcess, ...]) -> None:
    if left:
        pids = " ".join(str(each.pid) for each in left)
        raise UnavailableError(f"these do not end: {describe(left)}", hint=f"end them by hand: kill -9 {pids}")


def processes_of(site: Site, fleet: str) -> tuple[OrphanedProcess, ...]:
    """Return what runs of a fleet, whether the state knows it or not."""
    others = frozenset(desired.fleet for desired in site.store.fleets()) - {fleet}
    found = site.host.orphaned_processes(owner=site.store.owner, fleets=others)
    return tuple(each for each in found if each.fleet == fleet)


def end_processes(site: Site, fleet: str) -> None:
    """End what runs of a fleet, and return when it has. Raises UnavailableError naming those that do not end."""
    for _ in range(_LOOKS):
        found = processes_of(site, fleet)
        if not found:
            return
        _refuse_left(site.host.end_orphaned(found, within_s=_END_S))


def describe(found: tuple[OrphanedProcess, ...]) -> str:
    """Return processes in words, numbers first."""
    return ", ".join(f"{each.pid} ({each.role} of {each.fleet})" for each in found)

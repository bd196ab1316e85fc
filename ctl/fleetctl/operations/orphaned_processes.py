"""Finds processes that go on although their state was deleted, moved or set aside, and ends them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl import paths
from fleetctl.errors import StateError, UnavailableError

if TYPE_CHECKING:
    from fleetctl.operations.site import Site
    from fleetctl.ports.host import OrphanedProcess

_END_S = 12.0


def orphaned_processes(site: Site, fleet: str = "") -> tuple[OrphanedProcess, ...]:
    """Return what runs on this state directory and no fleet of it knows; of one fleet where it is named."""
    known = frozenset(desired.fleet for desired in site.store.fleets())
    # Asked for its owner, a state that is not there would be made.
    owner = site.store.owner if known or paths.state_db().exists() else ""
    found = site.host.orphaned_processes(owner=owner, fleets=known)
    return tuple(each for each in found if fleet in ("", each.fleet))


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
    left = site.host.end_orphaned(found, within_s=_END_S)
    if left:
        pids = " ".join(str(each.pid) for each in left)
        raise UnavailableError(f"these do not end: {describe(left)}", hint=f"end them by hand: kill -9 {pids}")


def describe(found: tuple[OrphanedProcess, ...]) -> str:
    """Return processes in words, numbers first."""
    return ", ".join(f"{each.pid} ({each.role} of {each.fleet})" for each in found)

"""What people ask for of one replica: to be drained and replaced."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.drains import is_drain_requested
from fleetctl.errors import NotFoundError, UnavailableError
from fleetctl.model.subject import Subject
from fleetctl.operations.audit import audited
from fleetctl.operations.command_rate import refuse_too_many
from fleetctl.operations.commands import exclusive, journal_command, wake_controller
from fleetctl.operations.freezing import refuse_frozen
from fleetctl.operations.lookup import running_fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.catalogue import Market
    from fleetctl.model.replica import Replica
    from fleetctl.operations.site import Site

_POLL_S = 0.25


def drain(  # noqa: PLR0913  # what may be said of a drain, each named
    site: Site,
    fleet: str,
    target: str,
    *,
    reason: str = "",
    override_freeze: bool = False,
    force: bool = False,
    dry_run: bool = False,
) -> Replica:
    """Have a replica (by its id or its node's) taken out of rotation, finished, stopped and replaced.

    Raises NotFoundError, FrozenError, DisruptionLimitError. Follow it with `follow_drain`.
    """
    with audited(site, "drain", fleet=fleet, dry_run=dry_run) as attempt:
        desired = running_fleet(site, fleet)
        replica = find_replica(site, fleet, target)
        refuse_frozen(desired, (replica.lane,), "draining is held back", override=override_freeze)
        if dry_run:
            return replica
        refuse_too_many(site, fleet, force=force)
        if not is_drain_requested(replica, desired.overrides):
            replica = _request_drain(site, fleet, replica, reason)
            attempt.note(f"replica/{replica.id} of {replica.lane}: drained{': ' if reason else ''}{reason}")
        wake_controller(site, fleet)
    return replica


def _request_drain(site: Site, fleet: str, replica: Replica, reason: str) -> Replica:
    with exclusive(site, fleet):
        held = running_fleet(site, fleet).overrides
        if replica.id in held.undrained:
            undrained = tuple(each for each in held.undrained if each != replica.id)
            site.store.set_overrides(fleet, replace(held, undrained=undrained), now=site.clock.now())
        found = site.store.request_drain(fleet, replica.id, now=site.clock.now())
    why = f"asked for by hand{': ' if reason else ''}{reason}"
    journal_command(site, fleet, subject=Subject.replica(replica.id), action="drain", reason=why)
    return found


def follow_drain(site: Site, fleet: str, replica_id: str, *, timeout_s: float) -> Iterator[Replica]:
    """Yield the replica's records until its node is gone. Raises UnavailableError after `timeout_s`."""
    deadline_s = site.clock.monotonic_s() + timeout_s
    while True:
        found = next((r for r in site.store.replicas(fleet) if r.id == replica_id), None)
        if found is None:
            return
        yield found
        if not found.state.is_live:
            return
        if site.clock.monotonic_s() >= deadline_s:
            raise UnavailableError(
                f"replica {replica_id} is still {found.state} after {timeout_s:g} s",
                hint=f"it goes on draining; see: fleetctl why {replica_id} -f {fleet}",
            )
        site.clock.sleep_blocking(_POLL_S)


def find_replica(site: Site, fleet: str, target: str) -> Replica:
    """Return the live replica of that id or node id. Raises NotFoundError."""
    for replica in site.store.replicas(fleet):
        if target in (replica.id, replica.node_id) and replica.state.is_live:
            return replica
    raise NotFoundError(
        f"fleet {fleet!r} has no live replica or node {target!r}", hint=f"live: {live_names(site, fleet)}"
    )


def live_names(site: Site, fleet: str, market: Market | None = None) -> str:
    """Return the ids of a fleet's live replicas, of one market if it is given, for a hint."""
    found = [r.id for r in site.store.replicas(fleet) if r.state.is_live and market in (None, r.market)]
    return ", ".join(found) or "none"

"""What people ask for of one replica: to be drained, or to be interrupted as its cloud would."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError, NotFoundError, UnavailableError
from fleetctl.model.catalogue import Market
from fleetctl.model.subject import Subject
from fleetctl.operations.commands import journal_command, wake_controller
from fleetctl.operations.overrides import running_fleet
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.replica import Replica
    from fleetctl.operations.site import Site

_POLL_S = 0.25


def drain(site: Site, fleet: str, target: str, *, dry_run: bool = False) -> Replica:
    """Have a replica (by its id or its node's) taken out of rotation, finished, stopped and replaced.

    Raises NotFoundError. Follow it with `follow_drain`.
    """
    running_fleet(site, fleet)
    replica = find_replica(site, fleet, target)
    if dry_run:
        return replica
    if not replica.drain_requested:
        replica = site.store.request_drain(fleet, replica.id, now=site.clock.now())
        journal_command(site, fleet, subject=Subject.replica(replica.id), action="drain", reason="asked for by hand")
    wake_controller(site, fleet)
    return replica


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


def interrupt(site: Site, fleet: str, target: str, *, notice_s: float, dry_run: bool = False) -> Replica:
    """Interrupt a spot node as its cloud would: notice now, gone `notice_s` later.

    Raises NotFoundError, ConfigError (not spot, or the provider cannot), ProviderError.
    """
    desired = running_fleet(site, fleet)
    replica = _interruptible(site, fleet, target)
    provider = site.providers(desired.profile.provider)
    interruptions = provider.capabilities.interruptions
    if interruptions is None:
        raise ConfigError(
            f"provider {provider.name} cannot interrupt nodes on request", hint="its own console or CLI may"
        )
    if dry_run:
        return replica
    reason = f"a drill, with {format_duration(notice_s)} notice"
    journal_command(site, fleet, subject=Subject.replica(replica.id), action="interrupt", reason=reason)
    asyncio.run(interruptions.interrupt(replica.node_id, notice_s=notice_s))
    wake_controller(site, fleet)
    return replica


def find_replica(site: Site, fleet: str, target: str) -> Replica:
    """Return the live replica of that id or node id. Raises NotFoundError."""
    for replica in site.store.replicas(fleet):
        if target in (replica.id, replica.node_id) and replica.state.is_live:
            return replica
    raise NotFoundError(f"fleet {fleet!r} has no live replica or node {target!r}", hint=f"live: {_names(site, fleet)}")


def _interruptible(site: Site, fleet: str, target: str) -> Replica:
    replica = find_replica(site, fleet, target)
    if replica.market is not Market.SPOT:
        raise ConfigError(
            f"{replica.id} is {replica.market}; only spot nodes are interrupted",
            hint=f"spot replicas: {_names(site, fleet, Market.SPOT)}; to take this one out: fleetctl drain",
        )
    if not replica.node_id:
        raise UnavailableError(f"{replica.id} has no node yet", hint="wait until it is ready")
    return replica


def _names(site: Site, fleet: str, market: Market | None = None) -> str:
    found = [r.id for r in site.store.replicas(fleet) if r.state.is_live and market in (None, r.market)]
    return ", ".join(found) or "none"

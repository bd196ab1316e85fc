"""Looks at where fleets are on record, ends a lease whose holder is gone, and moves a whole state elsewhere."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fleetctl.environment import STATE_URL
from fleetctl.errors import ConfigError, LockHeldError
from fleetctl.operations.audit import audited
from fleetctl.operations.commands import exclusive, kept_elsewhere
from fleetctl.paths import state_dir
from fleetctl.ports.lease import LeaseHolder
from fleetctl.state.moving import LOCAL, move_state
from fleetctl.state.opening import SHARED_PLACES
from fleetctl.state.shared import SharedStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.operations.site import Site
    from fleetctl.ports.lease import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFleet:
    """What is on record of one fleet, and who holds it; of a fleet in a file there are no commits and bytes."""

    fleet: str
    phase: str  # empty: it is gone, and its journal stays
    replicas: int
    open_intents: int
    epoch: int = 0  # of the newest lease; 0: none was ever taken
    holder: str = ""
    last_seen_at: datetime | None = None
    is_released: bool = True
    commits: int | None = None
    stored_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRecords:
    """Where a state lies, whose nodes it knows, and its fleets."""

    location: str
    is_shared: bool
    owner: str
    fleets: tuple[RecordedFleet, ...]


def state_records(site: Site) -> StateRecords:
    """Return what is on record where this command looks; nothing is made by it."""
    store = site.store
    names = {desired.fleet for desired in store.fleets()} | set(store.former_fleets())
    fleets = tuple(_records(site, name) for name in sorted(names))
    return StateRecords(
        location=store.location, is_shared=store.is_shared, owner=store.owner if names else "", fleets=fleets
    )


def _records(site: Site, fleet: str) -> RecordedFleet:
    desired, lease = site.store.fleet(fleet), site.store.lease(fleet)
    commits = stored_bytes = None
    if isinstance(site.store, SharedStore):
        database = site.store.database(fleet)
        commits = database.head.commit
        stored_bytes = database.head_bytes + sum(part.size_bytes for part in database.head.parts)
    return RecordedFleet(
        fleet=fleet,
        phase=desired.phase.value if desired is not None else "",
        replicas=sum(replica.state.is_live for replica in site.store.replicas(fleet)),
        open_intents=len(site.store.open_intents(fleet)),
        epoch=lease.epoch if lease is not None else 0,
        holder=f"process {lease.holder.pid} on {lease.holder.host}" if lease is not None else "",
        last_seen_at=lease.last_seen_at if lease is not None else None,
        is_released=lease is None or lease.released_at is not None,
        commits=commits,
        stored_bytes=stored_bytes,
    )


def unlock(site: Site, fleet: str) -> Lease:
    """End whatever lease there is on a fleet: its holder writes nothing more, and the next controller need not wait."""
    store = site.store
    if not isinstance(store, SharedStore):
        raise ConfigError(
            f"the state in {store.location} has nothing to unlock: a lock there ends with its process",
            hint=f"this is for a state that machines share: FLEETCTL_STATE is {SHARED_PLACES}",
        )
    with audited(site, "state unlock", fleet=fleet) as attempt, exclusive(site, fleet):
        now = site.clock.now()
        holder = LeaseHolder(
            pid=os.getpid(), host=socket.gethostname(), boot_id="", started_at=now, home=str(state_dir())
        )
        lease = store.break_lease(fleet, holder, now=now)
        attempt.note(f"lease: epoch {lease.epoch - 1} -> {lease.epoch}, released")
    return lease


def migrate(site: Site, target: str, environ: Mapping[str, str]) -> int:
    """Move the whole state to a URL, or to "local"; return how many rows it has. Raises LockHeldError while a fleet lives.

    The one it came from is marked, or set aside, so that nobody goes on with it.
    """
    source = environ.get(STATE_URL, "") or LOCAL
    if source == target:
        raise ConfigError(f"the state is in {target} already", hint="name another place")
    if target != LOCAL and "://" not in target:
        raise ConfigError(f"{target!r} is no place for a state", hint=f"write {SHARED_PLACES}, or `local`")
    with ExitStack() as held:
        for fleet in sorted({d.fleet for d in site.store.fleets()} | set(site.store.former_fleets())):
            held.enter_context(exclusive(site, fleet))
            _refuse_living(site, fleet)
        return move_state(source, target, now=site.clock.now())


def _refuse_living(site: Site, fleet: str) -> None:
    elsewhere = kept_elsewhere(site, fleet)
    if elsewhere is None and not site.host.processes(fleet).is_any:
        return
    who = (
        f"process {elsewhere.holder.pid} on {elsewhere.holder.host}" if elsewhere is not None else "its processes here"
    )
    raise LockHeldError(
        f"fleet {fleet} is at work ({who}), and writes to the state that would be moved",
        hint=f"take it down first: fleetctl down {fleet}; or end its controller and its gateway, and bring it up again after",
    )

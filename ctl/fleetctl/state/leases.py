"""Leases in their table, inside whatever transaction the caller holds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.core.clock_steps import is_step
from fleetctl.errors import FencedError, StateError
from fleetctl.ports.lease import Lease
from fleetctl.state.rows import from_text, to_text

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.ports.lease import LeaseHolder


def find_lease(db: sqlite3.Connection, fleet: str) -> Lease | None:
    """Return the newest lease on a fleet, or None."""
    row = db.execute("SELECT record FROM leases WHERE fleet = ?", (fleet,)).fetchone()
    return from_text(Lease, row[0]) if row else None


def acquire(db: sqlite3.Connection, fleet: str, holder: LeaseHolder, *, now: datetime, after: int, place: str) -> Lease:
    """Store a lease newer than every other, and return it. Raises StateError in a copy of a state that is still there."""
    before = find_lease(db, fleet)
    if before is not None:
        _refuse_copy(db, before, place)
    lease = Lease(
        fleet=fleet,
        epoch=max(after, before.epoch if before else 0) + 1,
        holder=holder,
        acquired_at=now,
        renewed_at=now,
        # A step of the clock that an earlier holder had not come to account for is still there to be found.
        clock_origin=before.origin if before is not None and _is_same_boot(before.holder, holder) else None,
        place=place,
    )
    _write(db, lease)
    return lease


def check(db: sqlite3.Connection, lease: Lease) -> None:
    """Return while the lease is the newest. Raises FencedError naming who holds a newer one."""
    row = db.execute("SELECT epoch FROM leases WHERE fleet = ?", (lease.fleet,)).fetchone()
    if row is not None and row[0] == lease.epoch:
        return
    newer = find_lease(db, lease.fleet)
    who = _holding(newer) if newer is not None else "it is gone"
    raise FencedError(f"the lease of epoch {lease.epoch} on fleet {lease.fleet} is over: {who}")


def _holding(lease: Lease) -> str:
    holder = lease.holder
    return f"process {holder.pid} on {holder.host} has held epoch {lease.epoch} since {lease.acquired_at:%F %T} UTC"


def renew(
    db: sqlite3.Connection, lease: Lease, *, now: datetime, monotonic_s: float | None, accounts_for_clock: bool = False
) -> None:
    """Store a sign of life. That the clock was set is stored once all else on record accounts for it, not before."""
    known = find_lease(db, lease.fleet)
    origin = known.clock_origin if known is not None else None
    if monotonic_s is not None:
        current = now - timedelta(seconds=monotonic_s)
        origin = current if accounts_for_clock or origin is None or not is_step(current - origin) else origin
    _write(db, replace(lease, renewed_at=now, renewed_monotonic_s=monotonic_s, clock_origin=origin))


def _is_same_boot(before: LeaseHolder, holder: LeaseHolder) -> bool:
    return bool(holder.boot_id) and before.boot_id == holder.boot_id


def release(db: sqlite3.Connection, lease: Lease, *, now: datetime) -> None:
    """Store that its holder has ended by itself."""
    known = find_lease(db, lease.fleet) or lease
    _write(db, replace(lease, renewed_at=now, released_at=now, clock_origin=known.clock_origin))


def _write(db: sqlite3.Connection, lease: Lease) -> None:
    db.execute(
        "INSERT OR REPLACE INTO leases (fleet, epoch, record) VALUES (?, ?, ?)",
        (lease.fleet, lease.epoch, to_text(lease)),
    )


def _refuse_copy(db: sqlite3.Connection, before: Lease, place: str) -> None:
    """Refuse a second state with the same nodes: its controller and the first one's would stop each other's."""
    original = Path(before.place)
    if not before.place or before.place == place or not original.exists():
        return
    if Path(place).exists() and original.samefile(place):
        return
    owner = db.execute("SELECT owner FROM identity").fetchone()
    if owner is not None and _owner_of(original) == owner[0]:
        raise StateError(
            f"{place} is a copy of {original}, which is still there: both know the same nodes, and would fight for them",
            hint=f"use {original.parent}, or move it away first",
        )


def _owner_of(path: Path) -> str:
    """Return whose nodes a state file knows; empty for a file that cannot be read."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as other:
            row = other.execute("SELECT owner FROM identity").fetchone()
    except sqlite3.Error:
        return ""
    return str(row[0]) if row else ""

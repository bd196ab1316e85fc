"""A database whose writes may be bound to a lease: the part of the store that fences."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, TypeVar

from fleetctl.state import leases

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from fleetctl.ports.lease import Lease, LeaseHolder
    from fleetctl.state.database import Database

T = TypeVar("T")


class LeasedDatabase:
    """Runs transactions in which the lease, if there is one, is checked before anything is written."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lease: Lease | None = None

    def acquire_lease(self, fleet: str, holder: LeaseHolder, *, now: datetime, after: int = 0) -> Lease:
        """Take a fleet over: every older lease on it is fenced from now on."""
        with self._write(durable=True, is_essential=True) as db:
            return leases.acquire(db, fleet, holder, now=now, after=after, place=self._database.place)

    def lease(self, fleet: str) -> Lease | None:
        """Return the newest lease on a fleet, or None."""
        with self._database.read() as db:
            return leases.find_lease(db, fleet)

    def under(self, lease: Lease) -> Self:
        """Return this store with every write bound to a lease; close the one it came from."""
        bound = copy.copy(self)
        bound._lease = lease  # noqa: SLF001  # our own class
        return bound

    def check_lease(self) -> None:
        """Return while the lease this store is bound to is the newest, or if it is bound to none."""
        if self._lease is not None:
            with self._database.read() as db:
                self._database.check_place()
                leases.check(db, self._lease)

    def renew_lease(self, *, now: datetime, monotonic_s: float | None = None, accounts_for_clock: bool = False) -> None:
        """Note that the holder of the lease lives. Raises FencedError."""
        if self._lease is not None:
            with self._write(durable=False) as db:
                leases.renew(db, self._lease, now=now, monotonic_s=monotonic_s, accounts_for_clock=accounts_for_clock)

    def release_lease(self, *, now: datetime) -> None:
        """Note that the holder of the lease has ended by itself. Raises FencedError."""
        if self._lease is not None:
            with self._write(durable=False) as db:
                leases.release(db, self._lease, now=now)

    def transact(self, work: Callable[[Self], T]) -> T:
        """Run the writes of a call as one transaction. Raises FencedError."""
        with self.together():
            return work(self)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let the reads of a block be of one reading."""
        with self._database.snapshot():
            yield

    @contextmanager
    def while_leased(self) -> Iterator[None]:
        """Let nobody take the fleet over during a block that writes elsewhere; milliseconds. Raises FencedError."""
        with self._write(durable=False):
            yield

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run the writes of a block as one transaction: all of them are stored, or none. Raises FencedError."""
        with self._database.together(durable=False):
            yield

    @contextmanager
    def _write(self, *, durable: bool, is_essential: bool = False) -> Iterator[sqlite3.Connection]:
        with self._database.write(durable=durable, is_essential=is_essential) as db:
            if self._lease is not None:
                self._database.check_place()
                leases.check(db, self._lease)
            yield db

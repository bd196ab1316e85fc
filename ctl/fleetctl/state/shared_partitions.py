"""The databases of a shared state, a fleet's each of its own, and the transactions on them, bound to a lease or not."""

from __future__ import annotations

import copy
import logging
import os
import threading
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import quote, unquote

from fleetctl.clock import SYSTEM_CLOCK, BlockingClock
from fleetctl.errors import FleetctlError, LockHeldError, StateError
from fleetctl.ports.objects import OutdatedVersionError
from fleetctl.state.lease_watch import LeaseWatch
from fleetctl.state.shared_database import HEAD_BYTES_MAX, SharedDatabase
from fleetctl.state.shared_identity import SharedIdentity, check_conditions
from fleetctl.state.sqlite import JOURNAL_ENTRIES_MAX, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from fleetctl.ports.lease import Lease, LeaseHolder
    from fleetctl.ports.objects import ObjectStore

T = TypeVar("T")

_log = logging.getLogger("fleetctl.state")
_DEADLINE_S = 30.0
_AGAIN_S = 0.05  # a commit takes about as long; who lost is not to lose to the same one again
_AGAIN_S_MAX = 1.0
_COMMON = "common"  # of what belongs to no fleet
_FLEETS = "fleets/"


class SharedPartitions:
    """Finds a fleet's database, runs a transaction on it until nobody comes between, and checks the lease in it."""

    def __init__(
        self,
        objects: ObjectStore,
        *,
        clock: BlockingClock = SYSTEM_CLOCK,
        deadline_s: float = _DEADLINE_S,
        journal_entries_max: int = JOURNAL_ENTRIES_MAX,
        head_bytes_max: int = HEAD_BYTES_MAX,
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._deadline_s = deadline_s
        self._journal_entries_max = journal_entries_max
        self._head_bytes_max = head_bytes_max
        self._identity = SharedIdentity(objects)
        self._lease: Lease | None = None
        self._watch = LeaseWatch(clock)
        self._dice = Random(os.urandom(8))
        self._show_fault = ""
        self._opening = threading.Lock()
        self._stores: dict[str, SqliteStore] = {}
        self._databases: dict[str, SharedDatabase] = {}

    def close(self) -> None:
        """Let go of everything; the store is of no use afterwards."""
        for store in self._stores.values():
            store.close()
        self._objects.close()

    # Leases

    def acquire_lease(self, fleet: str, holder: LeaseHolder, *, now: datetime, after: int = 0) -> Lease:
        """Take a fleet over. Raises LeaseHeldError while another machine's holder may live."""

        def take(store: SqliteStore) -> Lease:
            with store.together():
                self._watch.check(store.lease(fleet), holder)
                return store.acquire_lease(fleet, holder, now=now, after=after)

        return self._shown(self._write(fleet, take))

    def break_lease(self, fleet: str, holder: LeaseHolder, *, now: datetime) -> Lease:
        """Fence whoever holds a fleet, alive or not, and leave it to the next controller. Return the lease that did it."""

        def take(store: SqliteStore) -> Lease:
            with store.together():
                lease = store.acquire_lease(fleet, holder, now=now)
                store.under(lease).release_lease(now=now)
                return lease

        lease = self._write(fleet, take)
        self._shown(replace(lease, released_at=now))
        return lease

    def partitions(self) -> tuple[str, ...]:
        """Return the fleets of which anything is stored; the empty name stands for what belongs to none."""
        return tuple(name for name, _ in self._all_stores())

    def lease(self, fleet: str) -> Lease | None:
        """Return the newest lease on a fleet, or None."""
        return self._partition(fleet).lease(fleet)

    def under(self, lease: Lease) -> Self:
        """Return this store with every write bound to a lease; close the one it came from."""
        bound = copy.copy(self)
        bound._lease = lease  # noqa: SLF001  # our own class
        return bound

    def check_lease(self) -> None:
        """Return while the lease this store is bound to is the newest, or if it is bound to none."""
        if self._lease is not None:
            self._bound(self._lease.fleet).check_lease()

    def renew_lease(self, *, now: datetime, monotonic_s: float | None = None, accounts_for_clock: bool = False) -> None:
        """Note that the holder of the lease lives. Raises FencedError."""
        if self._lease is not None:
            self._write(
                self._lease.fleet,
                lambda s: s.renew_lease(now=now, monotonic_s=monotonic_s, accounts_for_clock=accounts_for_clock),
            )
            self._shown(replace(self._lease, renewed_at=now))

    def release_lease(self, *, now: datetime) -> None:
        """Note that the holder of the lease has ended by itself. Raises FencedError."""
        if self._lease is not None:
            self._write(self._lease.fleet, lambda s: s.release_lease(now=now))
            self._shown(replace(self._lease, renewed_at=now, released_at=now))

    def _shown(self, lease: Lease) -> Lease:
        """Return a lease that was stored, once it is shown; that it cannot be is said once, and keeps nobody from working."""
        try:
            self._objects.show_lease(lease)
        except FleetctlError as exc:
            if exc.message != self._show_fault:
                _log.warning("the lease of epoch %d on %s is not shown: %s", lease.epoch, lease.fleet, exc.message)
            self._show_fault = exc.message
        else:
            self._show_fault = ""
        return lease

    @contextmanager
    def while_leased(self) -> Iterator[None]:
        """Run a block that writes elsewhere on this machine, whose locks keep others out; the lease is checked before and after."""
        self.check_lease()
        yield
        self.check_lease()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run the writes of a block, to the lease's fleet, as one transaction. Raises LockHeldError where others' came between."""
        if self._lease is None:
            raise StateError("writes of several fleets are no one transaction", hint="bind the store to a lease first")
        try:
            with self._bound(self._lease.fleet).together():
                yield
        except OutdatedVersionError as exc:
            raise LockHeldError(f"{exc.message}, and nothing was written", hint="do it again") from exc

    def transact(self, work: Callable[[Self], T]) -> T:
        """Run a call's writes, to the lease's fleet, as one transaction; again where others' came between."""
        if self._lease is None:
            return work(self)

        def joined(store: SqliteStore) -> T:
            with store.together():
                return work(self)

        return self._write(self._lease.fleet, joined)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let the reads of a block, of the lease's fleet, be of one reading."""
        if self._lease is None:
            yield
            return
        with self._bound(self._lease.fleet).snapshot():
            yield

    # Which objects

    def check_conditions(self) -> None:
        """Return if the place keeps to conditional writes: an object is written and removed. Raises StateError."""
        check_conditions(self._objects)

    def _partition(self, fleet: str) -> SqliteStore:
        self._identity.check()
        with self._opening:
            if fleet not in self._stores:
                directory = f"{_FLEETS}{quote(fleet, safe='')}" if fleet else _COMMON
                database = SharedDatabase(
                    self._objects,
                    directory=directory,
                    fleet=fleet,
                    clock=self._clock,
                    deadline_s=self._deadline_s,
                    head_bytes_max=self._head_bytes_max,
                )
                self._databases[fleet] = database
                self._stores[fleet] = SqliteStore(
                    None,
                    clock=self._clock,
                    journal_entries_max=self._journal_entries_max,
                    opens_on_use=True,
                    database=database,
                )
            return self._stores[fleet]

    def _bound(self, fleet: str) -> SqliteStore:
        store = self._partition(fleet)
        return store.under(self._lease) if self._lease is not None and self._lease.fleet == fleet else store

    def _fleet_stores(self) -> Iterator[tuple[str, SqliteStore]]:
        keys = (key.removeprefix(_FLEETS).split("/") for key in self._objects.list_keys(_FLEETS))
        for name in sorted(unquote(parts[0]) for parts in keys if parts[1:] == ["head"]):
            yield name, self._partition(name)

    def _all_stores(self) -> Iterator[tuple[str, SqliteStore]]:
        yield "", self._partition("")
        yield from self._fleet_stores()

    def _of(self, fleets: Iterable[str]) -> str:
        """Return the fleet that all are of; of none, the lease's."""
        return one_fleet(fleets) or (self._lease.fleet if self._lease is not None else "")

    def _with_token(self, table: str, token: str) -> str:
        """Return the fleet whose records have a token; the lease's where there is one."""
        if self._lease is not None:
            return self._lease.fleet
        return next((name for name, _ in self._all_stores() if self._databases[name].has_token(table, token)), "")

    def _write(self, fleet: str, work: Callable[[SqliteStore], T]) -> T:
        """Run a transaction, again where others' came between. Raises LockHeldError once that was so for too long."""
        if self._lease is not None and self._lease.fleet != fleet:
            self.check_lease()
        self._identity.owner  # noqa: B018  # made before anything else is written
        until_s, pause_s = self._clock.monotonic_s() + self._deadline_s, _AGAIN_S
        while True:
            try:
                return work(self._bound(fleet))
            except OutdatedVersionError as exc:
                if self._clock.monotonic_s() > until_s:
                    raise LockHeldError(
                        f"{exc.message}: others wrote to it for {self._deadline_s:g} s without a pause",
                        hint="try again",
                    ) from exc
                self._clock.sleep_blocking(self._dice.uniform(0.0, pause_s))
                pause_s = min(2 * pause_s, _AGAIN_S_MAX)


def one_fleet(fleets: Iterable[str]) -> str:
    """Return the one fleet of all; empty for none. Raises StateError: records of several are no one transaction."""
    found = sorted(set(fleets))
    if len(found) > 1:
        raise StateError(f"{', '.join(found)}: records of several fleets are no one transaction", hint="one at a time")
    return found[0] if found else ""

"""The store as the controller has it: in memory at once, on disk behind it, others' writes brought in each tick.

The controller is the only writer of its fleet's replicas, intents and memory, and the lease holds it to that, so what
it wrote last is so although the store may not have it yet. What must be durable before it is acted on, such as the
intent of a create, is waited for with `committed`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from fleetctl.controller.clock_step import ClockStep
from fleetctl.controller.interruptions import step_since
from fleetctl.controller.store_view import StoreView, read_view
from fleetctl.controller.write_queue import LATE_S, SILENT_S, WriteQueue, fault_of
from fleetctl.core.clock_steps import shifted, shifted_replica
from fleetctl.core.slo.ledger import shifted_ledger
from fleetctl.errors import (
    AmbiguousOutcomeError,
    FencedError,
    FleetctlError,
    NotFoundError,
    StateError,
    state_error,
)
from fleetctl.files import write_whole
from fleetctl.model.decision import Memory
from fleetctl.model.desired import Desired, Overrides
from fleetctl.model.observation import StoreCondition, StoreFault
from fleetctl.ports.store import Intent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime, timedelta
    from pathlib import Path

    from fleetctl.clock import Clock
    from fleetctl.controller.store_access import StoreAccess
    from fleetctl.model.budget import BudgetLedger
    from fleetctl.model.journal import JournalEntry
    from fleetctl.model.node import NodeRequest
    from fleetctl.model.replica import Replica
    from fleetctl.ports.records import StoredRecord
    from fleetctl.ports.store import Settlement, SharedIntent, StateStore, Tombstone

_VERIFIED_WITHIN_S = 2.0
# Longer than a reading takes on a machine with twice the work it can do; a tick waits no longer for it.
_READ_S = 0.25
_SHOWN_MAX = 50
# Whoever locks the state for longer is stuck, and nobody knows for how long.
_JOURNALLED_WITHIN_S = 60.0
_DISK_FULL = "disk full: the state has no room to grow"
_MISSING = "the state directory was deleted or moved: nothing is decided until it is back"


T = TypeVar("T")


class WriteBehindStore:
    """Answers from memory and never blocks; `open` first, and `run` for as long as it is used."""

    def __init__(self, access: StoreAccess, fleet: str, clock: Clock) -> None:
        self._access = access
        self._fleet = fleet
        self._clock = clock
        self._queue = WriteQueue(access, clock)
        self._desired: Desired | None = None
        self._replicas: dict[str, Replica] = {}
        self._intents: dict[str, Intent] = {}
        self._shared: tuple[SharedIntent, ...] = ()
        self._memory = Memory()
        self._ledgers: dict[str, BudgetLedger] = {}
        self._last_number = 0
        self._touched: dict[str, int] = {}  # replica id or token -> ticket of the last write about it
        self._entries: tuple[JournalEntry, ...] = ()
        self._reading: asyncio.Future[StoreView] | None = None
        self._read_ticket = 0
        self._read_at_s = 0.0
        self._is_read_late = False
        self._read_fault: StoreCondition | None = None
        self._is_in_place = True
        self._has_disk_space = True

    @property
    def owner(self) -> str:
        """The store's uuid."""
        return self._access.owner

    @property
    def condition(self) -> StoreCondition | None:
        """What is wrong with the store now; None: nothing."""
        if not self._is_in_place:
            return StoreCondition(fault=StoreFault.MISSING, message=_MISSING)
        if not self._has_disk_space:
            return self._queue.condition or StoreCondition(fault=StoreFault.DISK_FULL, message=_DISK_FULL)
        return self._queue.condition or self._read_fault

    @property
    def is_late(self) -> bool:
        """Whether the store does not keep up: nobody waits for it then."""
        return self._is_read_late or self._queue.is_late

    @property
    def is_in_place(self) -> bool:
        """Whether the store's file is still where it was opened, as last read."""
        return self._is_in_place

    # Others' writes, and the order of ours

    async def open(self) -> None:
        """Read everything; what an earlier use did not write is forgotten. Raises FleetctlError."""
        self._queue.clear()
        self._touched.clear()
        self._entries, self._reading, self._read_fault = (), None, None
        fleet = self._fleet
        self._put_view(await self._access.read(lambda store: read_view(store, fleet)), 0)
        self._shared = await self._access.read(lambda store: store.shared_intents(fleet))
        self._memory = await self._access.read(lambda store: store.memory(fleet))
        self._ledgers = await self._access.read(lambda store: store.ledgers(fleet))
        self._last_number = await self._access.read(lambda store: store.last_replica_number(fleet))
        if (step := step_since(await self._access.read(lambda store: store.lease(fleet)), self._clock)) is not None:
            self.shift_clock(step)
        await self.refresh_journal()

    async def run(self) -> None:
        """Write what is queued, for ever. Raises FencedError."""
        await self._queue.run()

    @property
    def is_broken(self) -> bool:
        """Whether a write was refused: what is in memory is not what is so, and is to be opened anew."""
        return self._queue.is_broken

    async def refresh(self) -> None:
        """Bring in what others wrote; what does not come in a moment comes later. Raises FencedError."""
        if self._reading is None:
            self._read_ticket, self._read_at_s = self._queue.committed, self._clock.monotonic_s()
            self._reading = asyncio.ensure_future(self._read())
            # One that is under way when the controller ends is nobody's any more, whatever it brings.
            self._reading.add_done_callback(lambda reading: reading.cancelled() or reading.exception())
        # A store that answers at once has done so after one turn of the loop.
        await asyncio.wait([self._reading], timeout=0.0 if self._is_read_late else _READ_S)
        self._is_read_late = not self._reading.done()
        if self._is_read_late:
            waited_s = self._clock.monotonic_s() - self._read_at_s
            if waited_s > SILENT_S:
                message = f"the state has not been read for {waited_s:.1f} s"
                self._read_fault = StoreCondition(fault=StoreFault.SILENT, message=message)
            return
        reading, self._reading = self._reading, None
        self._take(reading)

    async def refresh_journal(self) -> None:
        """Bring in the newest lines of the journal, once ours are written."""
        await self.written_soon()
        if self.is_late or self.condition is not None:
            return
        fleet, after = self._fleet, self._entries[-1].seq if self._entries else 0
        try:
            async with asyncio.timeout(_READ_S):
                new = await self._access.read(lambda store: store.journal(fleet, after=after, limit=_SHOWN_MAX))
        except (TimeoutError, StateError):
            return  # the next tick's reading says what is wrong
        self._entries = (*self._entries, *new)[-_SHOWN_MAX:]

    async def committed(self) -> None:
        """Return when everything written so far is in the store. Raises StateError when it never will be."""
        await self._queue.wait(self._queue.ticket)

    async def journalled(self) -> None:
        """Return when what was decided is on record, or the store has not kept it for long: nodes that go on cost money."""
        if self.condition is None or self.condition.fault in (StoreFault.LOCKED, StoreFault.SILENT):
            await self._queue.wait_briefly(_JOURNALLED_WITHIN_S, even_late=True)

    async def written_soon(self, within_s: float = LATE_S) -> bool:
        """Give what is queued a moment; return whether all of it is in the store."""
        if not self._is_read_late:
            await self._queue.wait_briefly(within_s)
        return self._queue.committed >= self._queue.ticket

    async def verify_lease(self, within_s: float = _VERIFIED_WITHIN_S) -> None:
        """Return if the lease is the newest. Raises FencedError; AmbiguousOutcomeError where the store does not say."""
        try:
            async with asyncio.timeout(within_s):
                await self._access.read(lambda store: store.check_lease())
        except TimeoutError as exc:
            raise AmbiguousOutcomeError("the state does not answer, so nothing is ordered or ended") from exc
        except FencedError:
            raise
        except FleetctlError as exc:
            raise AmbiguousOutcomeError(f"the lease cannot be read: {exc.message}", hint=exc.hint) from exc

    def renew_lease(self, *, now: datetime, monotonic_s: float) -> None:
        """Note that the holder of the lease lives."""
        self._queue.put(lambda store: store.renew_lease(now=now, monotonic_s=monotonic_s), key="lease")

    def shift_clock(self, by: timedelta) -> None:
        """Move every instant on record along with a wall clock that was set; in one write, so that none is moved twice."""
        records = tuple(shifted_replica(record, by) for record in self.replicas() if record.state.is_live)
        self._replicas.update({record.id: record for record in records})
        self._memory = memory = shifted(self._memory, by)
        self._ledgers = ledgers = {lane: shifted_ledger(ledger, by) for lane, ledger in self._ledgers.items()}
        step = ClockStep(
            fleet=self._fleet,
            by=by,
            records=records,
            memory=memory,
            ledgers=ledgers,
            held=self._desired.overrides if self._desired is not None else Overrides(),
            now=self._clock.now(),
            monotonic_s=self._clock.monotonic_s(),
        )
        self._queue.put(step.write)
        self._touch(record.id for record in records)

    # Desired state and records, as they are now

    def fleet(self) -> Desired | None:
        """Return the fleet's desired state as last read, or None."""
        return self._desired

    def put_overrides(
        self, overrides: Overrides, *, expected: Overrides, entries: tuple[JournalEntry, ...] = ()
    ) -> None:
        """Replace what people set by hand and append to the journal, unless they have changed it since it was read."""
        fleet, now = self._fleet, self._clock.now()

        def write(store: StateStore) -> None:
            before = store.fleet(fleet)
            if before is None or before.overrides != expected:
                return
            if store.set_overrides(fleet, overrides, now=now, expected=expected).overrides == overrides:
                store.append(entries)

        self._queue.put(write, key="overrides")

    def replicas(self) -> tuple[Replica, ...]:
        """Return the fleet's replicas, oldest first; ended ones for an hour."""
        return tuple(self._replicas.values())

    def put_replica(self, replica: Replica) -> None:
        """Change a replica's record."""
        self._put_replica(replica, lambda store: store.put_replica(replica), key=f"replica/{replica.id}")

    def next_replica_number(self) -> int:
        """Return a number never given before."""
        fleet = self._fleet
        self._last_number += 1
        self._queue.put(lambda store: store.next_replica_number(fleet))
        return self._last_number

    def begin_replicas(self, begun: tuple[tuple[Replica, NodeRequest], ...], *, now: datetime) -> tuple[Intent, ...]:
        """Add PENDING replicas and the OPEN intents to create their nodes; await `committed` before they are sent."""
        intents = tuple(Intent.opened(replica, request, now=now) for replica, request in begun)
        for (replica, _), intent in zip(begun, intents, strict=True):
            self._replicas[replica.id] = replica
            self._intents[intent.token] = intent
        self._queue.put(lambda store: store.begin_replicas(begun, now=now))
        self._touch([replica.id for replica, _ in begun] + [intent.token for intent in intents])
        return intents

    def amend_intents(self, intents: tuple[Intent, ...]) -> None:
        """Complete the requests of OPEN intents; await `committed` before they are sent. Raises NotFoundError."""
        for intent in intents:
            if intent.token not in self._intents:
                raise NotFoundError(f"no open intent has the token {intent.token}")
        self._intents.update({intent.token: intent for intent in intents})
        self._queue.put(lambda store: store.amend_intents(intents))
        self._touch(intent.token for intent in intents)

    def settle_intents(self, settled: tuple[Settlement, ...]) -> None:
        """Close intents, and change their replicas' records."""
        if not settled:
            return
        for settlement in settled:
            self._intents.pop(settlement.token, None)
            if settlement.replica is not None:
                self._replicas[settlement.replica.id] = settlement.replica
        self._queue.put(lambda store: store.settle_intents(settled))
        self._touch(settlement.token for settlement in settled)
        self._touch(settlement.replica.id for settlement in settled if settlement.replica is not None)

    def open_intents(self) -> tuple[Intent, ...]:
        """Return what must be resolved before anything else, oldest first."""
        return tuple(self._intents.values())

    async def read(self, work: Callable[[StateStore], T]) -> T:
        """Return what the store itself says; the caller bounds the wait."""
        return await self._access.read(work)

    def write(self, work: Callable[[StateStore], object]) -> None:
        """Do in the store, after the writes before, what others read back."""
        self._queue.put(work)

    # What nodes share, tombstones, memory, the journal

    def shared_intents(self) -> tuple[SharedIntent, ...]:
        """Return what the fleet's nodes share, as it was when the store was opened."""
        return self._shared

    def put_shared(self, intent: SharedIntent) -> None:
        """Store how far a shared resource has come; await `committed` before the provider is asked."""
        self._shared = (*(each for each in self._shared if each.token != intent.token), intent)
        self._queue.put(lambda store: store.put_shared(intent))

    def end_shared(self, token: str, *, tombstone: Tombstone | None = None) -> None:
        """Forget a shared resource that was torn down, or bury it."""
        self._shared = tuple(each for each in self._shared if each.token != token)
        self._queue.put(lambda store: store.end_shared(token, tombstone=tombstone))

    def bury(self, tombstone: Tombstone) -> None:
        """Remember an order whose node was not seen to have ended."""
        self._queue.put(lambda store: store.bury(tombstone))

    def memory(self) -> Memory:
        """Return the controller's memory; empty for a new fleet."""
        return self._memory

    def put_memory(self, memory: Memory) -> None:
        """Change the controller's memory."""
        fleet, self._memory = self._fleet, memory
        self._queue.put(lambda store: store.put_memory(fleet, memory), key="memory")

    def ledgers(self) -> dict[str, BudgetLedger]:
        """Return the error-budget ledgers by lane."""
        return self._ledgers

    def put_ledgers(self, ledgers: dict[str, BudgetLedger]) -> None:
        """Change the ledgers; those of other lanes go."""
        fleet, self._ledgers = self._fleet, ledgers
        self._queue.put(lambda store: store.put_ledgers(fleet, ledgers), key="ledgers", is_postponable=True)

    def append(self, entries: tuple[JournalEntry, ...]) -> None:
        """Append to the journal. While a great many writes wait, lines go to the log alone."""
        if entries and self._queue.takes_journal:
            self._queue.put(lambda store: store.append(entries))

    def entries(self) -> tuple[JournalEntry, ...]:
        """Return the newest lines of the journal as last read, oldest first."""
        return self._entries

    def put_record(self, record: StoredRecord) -> None:
        """Store a record of a collection, behind the tick; only the newest of its key is written."""
        key = f"record/{record.collection.value}/{record.key}"
        self._queue.put(lambda store: store.put_record(record, durable=False), key=key)

    def put_file(self, path: Path, raw: bytes) -> None:
        """Replace a file that belongs to the lease, in the order of the writes; without room for it, after them."""

        def write(store: StateStore) -> None:
            with store.while_leased():
                try:
                    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                    write_whole(path, raw, mode=0o600)
                except OSError as exc:
                    raise state_error(path, exc) from exc

        self._queue.put(write, key=f"file/{path}", is_postponable=True)

    async def _read(self) -> StoreView:
        fleet = self._fleet
        return await self._access.read(lambda store: read_view(store, fleet))

    def _take(self, reading: asyncio.Future[StoreView]) -> None:
        try:
            view = reading.result()
        except FencedError:
            raise
        except FleetctlError as exc:
            self._read_fault = StoreCondition(fault=fault_of(exc), message=exc.message, since=self._clock.now())
            return
        self._read_fault = None
        self._put_view(view, self._read_ticket)

    def _put_view(self, view: StoreView, read_ticket: int) -> None:
        """Take over what was read, except for what was written since, or not written yet."""
        self._is_in_place = view.is_in_place
        if not view.is_in_place:
            return
        self._desired, self._has_disk_space = view.desired, view.has_disk_space
        self._touched = {name: ticket for name, ticket in self._touched.items() if ticket > read_ticket}
        mine = {name: record for name, record in self._replicas.items() if name in self._touched}
        theirs = {record.id: record for record in view.replicas}
        for name, record in mine.items():
            drains = name in theirs and theirs[name].drain_requested
            theirs[name] = replace(record, drain_requested=True) if drains else record
        self._replicas = theirs
        open_then = {intent.token: intent for intent in view.intents if intent.token not in self._touched}
        open_since = {token: intent for token, intent in self._intents.items() if token in self._touched}
        self._intents = open_then | open_since

    def _put_replica(self, replica: Replica, work: Callable[[StateStore], object], *, key: str) -> None:
        self._replicas[replica.id] = replica
        self._queue.put(work, key=key)
        self._touch((replica.id,))

    def _touch(self, names: Iterable[str]) -> None:
        self._touched.update(dict.fromkeys(names, self._queue.ticket))

"""Writes to the store in their order, off the event loop; what cannot be written now is tried again until it can."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeGuard

from fleetctl.errors import (
    DamagedStateError,
    DiskFullError,
    FencedError,
    FleetctlError,
    LockHeldError,
    MissingStateError,
    StateError,
)
from fleetctl.model.observation import StoreCondition, StoreFault
from fleetctl.ports.store import StateStore

if TYPE_CHECKING:
    from fleetctl.clock import Clock
    from fleetctl.controller.store_access import StoreAccess

_log = logging.getLogger("fleetctl.controller")
_AGAIN_S = 0.5
# A write that takes longer keeps nobody waiting: the tick goes on with what is in memory.
LATE_S = 0.3
# Busy machines take a second now and then; what takes longer is worth a word.
SILENT_S = 2.0
_LOGGED_AGAIN_S = 60.0
# Lines of the journal that may wait; while it cannot be written, later ones go to the log alone.
_WAITING_MAX = 2000
# Writes of one transaction where one costs a call to elsewhere: those of a tick and more.
_BATCH_MAX = 200
_FAULTS: tuple[tuple[type[FleetctlError], StoreFault], ...] = (
    (MissingStateError, StoreFault.MISSING),
    (DiskFullError, StoreFault.DISK_FULL),
    (DamagedStateError, StoreFault.DAMAGED),
    (LockHeldError, StoreFault.LOCKED),
)


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    ticket: int
    work: Callable[[StateStore], object]
    key: str
    queued_s: float
    is_postponable: bool = False  # those behind it need not wait for room for it


class WriteQueue:
    """Holds the writes that are not in the store yet, oldest first. A ticket is a write's place in the order."""

    def __init__(self, access: StoreAccess, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._waiting: deque[_Write] = deque()
        self._ticket = 0
        self._progress = asyncio.Event()
        self._work = asyncio.Event()
        self._condition: StoreCondition | None = None
        self._logged_s: dict[StoreFault, float] = {}
        self._broken: Exception | None = None
        self._singly_through = 0  # up to this ticket each write is made alone

    @property
    def ticket(self) -> int:
        """The latest write's."""
        return self._ticket

    @property
    def committed(self) -> int:
        """The latest ticket up to which everything is in the store."""
        return self._waiting[0].ticket - 1 if self._waiting else self._ticket

    @property
    def is_late(self) -> bool:
        """Whether the store does not keep up: nobody waits for it then."""
        return self._condition is not None or self._waited_s > LATE_S

    @property
    def condition(self) -> StoreCondition | None:
        """What keeps the store from being written; None: nothing."""
        if self._condition is not None or self._waited_s <= SILENT_S:
            return self._condition
        message = f"a write to the state has waited for {self._waited_s:.1f} s"
        return StoreCondition(fault=StoreFault.SILENT, message=message)

    @property
    def _waited_s(self) -> float:
        return self._clock.monotonic_s() - self._waiting[0].queued_s if self._waiting else 0.0

    def put(self, work: Callable[[StateStore], object], *, key: str = "", is_postponable: bool = False) -> None:
        """Queue a write; it takes the place of one of the same `key` that still waits.

        Where the store answers at once, so does this: then it raises what the write raised, FencedError foremost.
        """
        self._ticket += 1
        if key:
            begun = None if self._access.is_inline else (self._waiting[0] if self._waiting else None)
            self._waiting = deque(w for w in self._waiting if w.key != key or w is begun)
        elif len(self._waiting) >= _WAITING_MAX:
            raise StateError(f"{_WAITING_MAX} writes wait for the state", hint="see why in `fleetctl status`")
        write = _Write(self._ticket, work, key, self._clock.monotonic_s(), is_postponable)
        self._waiting.append(write)
        if self._access.is_inline and len(self._waiting) == 1:
            self._write_now(write)
        else:
            self._work.set()

    @property
    def takes_journal(self) -> bool:
        """Whether what may be left out of the store, such as a line of the journal, may be queued too."""
        return len(self._waiting) < _WAITING_MAX // 2

    async def run(self) -> None:
        """Write for ever. Raises FencedError."""
        while True:
            while not self._waiting:
                self._work.clear()
                await self._work.wait()
            write, batch = self._waiting[0], self._batch()
            try:
                await self._access.write(write.work if len(batch) == 1 else partial(_write_together, batch))
            except FencedError:
                raise
            except Exception as exc:  # noqa: BLE001  # looked at: what passes is tried again, the rest is refused
                if _passes(exc):
                    self._failed(exc)
                    if not self._is_postponed(write, exc):
                        await self._clock.sleep(_AGAIN_S)
                    continue
                if len(batch) > 1:
                    self._singly_through = batch[-1].ticket  # the one that is refused is to be found
                    continue
                _log.exception("a write to the state was refused; all is read anew")
                self._broken = exc
            else:
                self._succeeded()
            while self._waiting and self._waiting[0] in batch:
                self._done(self._waiting[0])

    def _batch(self) -> tuple[_Write, ...]:
        """Return the writes that go together: the first alone where a transaction costs no call to elsewhere."""
        if not self._access.is_shared or self._waiting[0].ticket <= self._singly_through:
            return (self._waiting[0],)
        return tuple(islice(self._waiting, _BATCH_MAX))

    def _is_postponed(self, write: _Write, error: FleetctlError) -> bool:
        """Put what finds no room behind all else that waits; False: nothing else does, or it must keep its place."""
        others = [each for each in self._waiting if each is not write and not each.is_postponable]
        if not (write.is_postponable and isinstance(error, DiskFullError) and others):
            return False
        self._done(write)
        if all(each.key != write.key for each in self._waiting):
            self.put(write.work, key=write.key, is_postponable=True)
        return True

    async def wait(self, ticket: int) -> None:
        """Return when everything up to a ticket is in the store. Raises StateError when a write of it never will be."""
        while self.committed < ticket and self._broken is None:
            self._progress.clear()
            await self._progress.wait()
        if self._broken is not None:
            raise StateError(f"a write to the state was refused: {self._broken}") from self._broken

    async def wait_briefly(self, within_s: float, *, even_late: bool = False) -> None:
        """Give what is queued a moment to be written; none while the store does not keep up, unless told so."""
        if self.committed >= self._ticket or (self.is_late and not even_late):
            return
        try:
            async with asyncio.timeout(within_s):
                await self.wait(self._ticket)
        except TimeoutError:
            return

    @property
    def is_broken(self) -> bool:
        """Whether a write was refused: memory and store differ then."""
        return self._broken is not None

    def clear(self) -> None:
        """Forget everything that was not written."""
        self._waiting.clear()
        self._broken = self._condition = None
        self._progress.set()

    def _write_now(self, write: _Write) -> None:
        try:
            self._access.call(write.work)
        except FencedError:
            self._done(write)
            raise
        except (StateError, LockHeldError) as exc:
            self._failed(exc)
            self._work.set()
        except BaseException:
            self._done(write)
            raise
        else:
            self._succeeded()
            self._done(write)

    def _done(self, write: _Write) -> None:
        if self._waiting and self._waiting[0] is write:
            self._waiting.popleft()
        self._progress.set()

    def _succeeded(self) -> None:
        if self._condition is not None:
            _log.warning("the state can be written again")
        self._condition = None

    def _failed(self, error: FleetctlError) -> None:
        fault = fault_of(error)
        since = self._clock.now()
        if self._condition is not None and self._condition.fault is fault:
            since = self._condition.since or since
        self._condition = StoreCondition(fault=fault, message=error.message, since=since)
        now_s = self._clock.monotonic_s()
        if now_s - self._logged_s.get(fault, float("-inf")) >= _LOGGED_AGAIN_S:
            self._logged_s[fault] = now_s
            _log.error("%s: %s; serving goes on, nothing new is created", fault.value, error.message)


def _write_together(batch: tuple[_Write, ...], store: StateStore) -> None:
    def write(bound: StateStore) -> None:
        for each in batch:
            each.work(bound)

    store.transact(write)


def _passes(error: Exception) -> TypeGuard[FleetctlError]:
    """Whether a write may succeed later: it failed by the file or its disk, not by what is in it."""
    if isinstance(error, StateError | LockHeldError):
        return fault_of(error) is not StoreFault.UNWRITABLE or error.__cause__ is not None
    return False


def fault_of(error: FleetctlError) -> StoreFault:
    """Return what an error of the store says of it."""
    return next((fault for kind, fault in _FAULTS if isinstance(error, kind)), StoreFault.UNWRITABLE)

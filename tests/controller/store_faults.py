"""A store that is locked, full or hung for as long as a test wants."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fleetctl.controller.store_access import InlineAccess

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.ports.store import StateStore

T = TypeVar("T")

_READS = {
    "owner", "fleet", "replicas", "open_intents", "shared_intents", "memory", "ledgers", "journal", "check_lease",
    "lease", "last_replica_number", "has_disk_space", "is_in_place", "find_record", "records",
}  # fmt: skip


class FaultyStore:
    """Stands before a store; while `fault` is set every write raises it."""

    def __init__(self, target: StateStore) -> None:
        self._target = target
        self.fault: Exception | None = None
        self.is_there = True
        self.writes: list[str] = []

    def is_in_place(self) -> bool:
        """Whether the file is where it was."""
        return self.is_there

    def __getattr__(self, name: str) -> Any:  # whatever the target has
        found = getattr(self._target, name)
        if name in _READS:
            return found

        def written(*args: object, **named: object) -> object:
            if self.fault is not None:
                raise self.fault
            self.writes.append(name)
            return found(*args, **named)

        return written


class HungAccess(InlineAccess):
    """Implements StoreAccess over a store whose writes, or all of it, do not answer while it is hung."""

    is_inline = False

    def __init__(self, store: StateStore) -> None:
        super().__init__(store)
        self._writable, self._readable = asyncio.Event(), asyncio.Event()
        self.let_go()

    def hang(self, *, reads: bool = False) -> None:
        """Let writes wait, and reads too if told so."""
        self._writable.clear()
        if reads:
            self._readable.clear()

    def let_go(self) -> None:
        """Answer again."""
        self._writable.set()
        self._readable.set()

    async def write(self, work: Callable[[StateStore], T]) -> T:
        """Run a write once it can be."""
        await self._writable.wait()
        return work(self._store)

    async def read(self, work: Callable[[StateStore], T]) -> T:
        """Run a read once it can be."""
        await self._readable.wait()
        return work(self._store)


def as_store(store: FaultyStore) -> StateStore:
    """Return it as what it stands for."""
    return cast("StateStore", store)

"""Runs the store's calls where they may block: in threads of their own, or at once where nothing waits (tests)."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.ports.store import StateStore

T = TypeVar("T")


class StoreAccess(Protocol):
    """Runs calls of one store; writes one after the other, reads beside them."""

    @property
    def is_inline(self) -> bool:
        """Whether a call is over when it returns, so that `call` may be used."""
        ...

    @property
    def owner(self) -> str:
        """The store's owner, read once."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether a transaction is a call to elsewhere, so that several writes are best made one."""
        ...

    def call(self, work: Callable[[StateStore], T]) -> T:
        """Run a call at once, in this thread."""
        ...

    async def write(self, work: Callable[[StateStore], T]) -> T:
        """Run a call that writes."""
        ...

    async def read(self, work: Callable[[StateStore], T]) -> T:
        """Run a call that only reads."""
        ...


class InlineAccess:
    """Implements StoreAccess without threads: for a store that answers at once."""

    is_inline = True
    is_shared = False

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.owner = store.owner

    def call(self, work: Callable[[StateStore], T]) -> T:
        """Run a call at once."""
        return work(self._store)

    async def write(self, work: Callable[[StateStore], T]) -> T:
        """Run a call that writes."""
        return work(self._store)

    async def read(self, work: Callable[[StateStore], T]) -> T:
        """Run a call that only reads."""
        return work(self._store)


class ThreadedAccess:
    """Implements StoreAccess on two threads with a connection each: a write that waits for a lock delays no read."""

    is_inline = False

    def __init__(self, writer: StateStore, reader: StateStore) -> None:
        self._writer, self._reader = writer, reader
        self.owner, self.is_shared = writer.owner, writer.is_shared
        self._write_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-write")
        self._read_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-read")

    def call(self, work: Callable[[StateStore], T]) -> T:
        """Run a call at once, in this thread; only for a loop that has nothing else to do."""
        return work(self._writer)

    async def write(self, work: Callable[[StateStore], T]) -> T:
        """Run a call that writes."""
        return await asyncio.get_running_loop().run_in_executor(self._write_thread, work, self._writer)

    async def read(self, work: Callable[[StateStore], T]) -> T:
        """Run a call that only reads."""
        return await asyncio.get_running_loop().run_in_executor(self._read_thread, work, self._reader)

    def close(self) -> None:
        """Begin nothing more; what is under way ends by its own deadline."""
        for thread in (self._write_thread, self._read_thread):
            thread.shutdown(wait=False, cancel_futures=True)

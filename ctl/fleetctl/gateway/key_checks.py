"""The slow checks of keys nobody has used yet: one at a time, in turns among addresses, and never all of a core."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from fleetctl.core.admission.keys import matches

if TYPE_CHECKING:
    from fleetctl.clock import Clock

# A connection waits for one check at a time, so only as many connections can have more waiting.
_WAITING_PER_ADDRESS_MAX = 256
_WAITING_MAX = 1024
# After each check as long a rest: a flood of keys takes half a core at most.
_REST_PER_CHECK_S = 1.0

Waiting = tuple[bytes, tuple[str, ...], asyncio.Future[str]]


class KeyChecks:
    """Compares keys with slow hashes in a thread. Who asks for the same key waits for the same check."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_address: OrderedDict[str, deque[Waiting]] = OrderedDict()
        self._pending: dict[tuple[bytes, tuple[str, ...]], asyncio.Future[str]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._worker: asyncio.Task[None] | None = None

    async def check(self, key: bytes, hashes: tuple[str, ...], *, address: str) -> str | None:
        """Return which of these hashes is the key's; "": none is. None: too many wait already."""
        pending = self._pending.get((key, hashes))
        if pending is None:
            queue = self._by_address.get(address, ())
            if len(queue) >= _WAITING_PER_ADDRESS_MAX or len(self._pending) >= _WAITING_MAX:
                return None
            pending = self._enqueue(key, hashes, address)
        # Whoever leaves must not take the check from those who wait for it too.
        return await asyncio.shield(pending)

    def close(self) -> None:
        """Check no more: the process ends."""
        if self._worker is not None:
            self._worker.cancel()

    def _enqueue(self, key: bytes, hashes: tuple[str, ...], address: str) -> asyncio.Future[str]:
        loop = asyncio.get_running_loop()
        pending: asyncio.Future[str] = loop.create_future()
        self._pending[key, hashes] = pending
        self._by_address.setdefault(address, deque()).append((key, hashes, pending))
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work())
        return pending

    async def _work(self) -> None:
        """Take one key of each address in turn until none waits."""
        self._threads = self._threads or ThreadPoolExecutor(max_workers=1, thread_name_prefix="keys")
        while self._by_address:
            address, queue = self._by_address.popitem(last=False)
            key, hashes, pending = queue.popleft()
            if queue:
                self._by_address[address] = queue
            began_s = self._clock.monotonic_s()
            found = await asyncio.get_running_loop().run_in_executor(self._threads, _matching, key, hashes)
            del self._pending[key, hashes]
            pending.set_result(found)
            await self._clock.sleep(_REST_PER_CHECK_S * (self._clock.monotonic_s() - began_s))


def _matching(key: bytes, hashes: tuple[str, ...]) -> str:
    """Return the first hash that is the key's. Every one is compared, so that time does not tell which it was."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return ""
    found = [hashed for hashed in hashes if matches(text, hashed)]
    return found[0] if found else ""

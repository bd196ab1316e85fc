"""Clocks that do not wait: one moved by hand, one that belongs to the running (virtual) loop."""

from __future__ import annotations

import asyncio
import heapq
from datetime import datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.clock import Clock


class ManualClock:
    """Implements BlockingClock; time passes only in `advance`, which wakes sleepers in the order of their deadlines."""

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._elapsed_s = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """Return the wall time, aware."""
        return self._start + timedelta(seconds=self._elapsed_s)

    def monotonic_s(self) -> float:
        """Return seconds since the clock was made."""
        return self._elapsed_s

    async def sleep(self, seconds: float) -> None:
        """Wait until somebody has advanced the clock this far."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed_s + max(0.0, seconds), next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Let time pass, running what wakes at each instant before going on to the next."""
        target_s = self._elapsed_s + seconds
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= target_s:
            deadline_s, _, woken = heapq.heappop(self._sleepers)
            self._elapsed_s = max(self._elapsed_s, deadline_s)
            if not woken.done():
                woken.set_result(None)
                await _settle()
        self._elapsed_s = target_s

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock, and leave the steady one."""
        self._start += timedelta(seconds=seconds)

    def jump(self, seconds: float) -> None:
        """Let time pass for synchronous code; sleepers notice at the next `advance`."""
        self._elapsed_s += seconds

    def sleep_blocking(self, seconds: float) -> None:
        """Let the time a synchronous caller waits pass at once."""
        self.jump(seconds)


class LoopClock:
    """Implements Clock on the running loop's time, so that under VirtualTimeLoop everything shares one time."""

    def __init__(self, start: datetime) -> None:
        self._start = start

    def now(self) -> datetime:
        """Return the start plus the loop's time."""
        return self._start + timedelta(seconds=self.monotonic_s())

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock, and leave the steady one."""
        self._start += timedelta(seconds=seconds)

    def monotonic_s(self) -> float:
        """Return the loop's time."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait on the loop's timers."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(max(0.0, seconds), _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()


class SteadyClock:
    """Implements Clock on another one's steady time: where that one's wall clock is set, this one's goes on as it did."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._origin: datetime | None = None

    def now(self) -> datetime:
        """Return the wall time as nobody has set it."""
        elapsed = timedelta(seconds=self._clock.monotonic_s())
        if self._origin is None:
            self._origin = self._clock.now() - elapsed
        return self._origin + elapsed

    def monotonic_s(self) -> float:
        """Return the other's steady time."""
        return self._clock.monotonic_s()

    async def sleep(self, seconds: float) -> None:
        """Wait as the other does."""
        await self._clock.sleep(seconds)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


async def _settle() -> None:
    """Run the loop until what was ready, and what that made ready, has run."""
    loop = asyncio.get_running_loop()
    for _ in range(20):
        turn: asyncio.Future[None] = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn

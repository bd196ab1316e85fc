"""The only module that reads a clock or sleeps; everything else is handed a `Clock` or a `now`."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Reads the time and sleeps. `testing.ManualClock` and the virtual-time loop implement it too."""

    def now(self) -> datetime:
        """Return the wall time, aware and in UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds from an arbitrary start that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait, cancellably."""
        ...


class BlockingClock(Clock, Protocol):
    """Lets synchronous callers wait too."""

    def sleep_blocking(self, seconds: float) -> None:
        """Wait, and do nothing else meanwhile."""
        ...


class SystemClock:
    """The system's clock."""

    def now(self) -> datetime:
        """Return the wall time, aware and in UTC."""
        return datetime.now(UTC)

    # CLOCK_MONOTONIC in seconds: the same scale in every process of this boot. Bound as it is, for the gateway reads it
    # with every event of a stream, and a call of ours around it costs more than the clock.
    monotonic_s = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Wait on the running loop's own timers."""
        await asyncio.sleep(seconds)

    def sleep_blocking(self, seconds: float) -> None:
        """Wait in a synchronous caller (the CLI between two polls)."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


def thread_cpu_s() -> float:
    """Return how long the calling thread has computed."""
    return time.thread_time()

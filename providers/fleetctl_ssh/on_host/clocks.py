"""The machine's clocks. The product's own are not there."""

from __future__ import annotations

import time


def wall_s() -> float:
    """Return seconds since 1970, as its records show them; nothing is decided by it but what is old enough to go."""
    return time.time()


def boot_s() -> float:
    """Return seconds since the machine started, suspension counted: setting the clock moves no deadline."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wait(seconds: float) -> None:
    """Do nothing for a while."""
    time.sleep(seconds)

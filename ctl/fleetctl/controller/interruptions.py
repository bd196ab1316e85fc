"""What makes a controller begin anew with fresh eyes: its clock was set, or its state was gone for a while."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.core.clock_steps import is_step

if TYPE_CHECKING:
    from fleetctl.clock import Clock
    from fleetctl.ports.lease import Lease


class RestartError(Exception):
    """What is remembered of provider and probes is no longer to be believed: look again before deciding."""


class ClockWatch:
    """A watch over the wall clock, which people and daemons set, by the steady one, which nobody does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._origin = _origin(clock.now(), clock.monotonic_s())

    def step(self) -> timedelta | None:
        """Return how far the wall clock was set since the last call; None: it was not."""
        origin = _origin(self._clock.now(), self._clock.monotonic_s())
        by, self._origin = origin - self._origin, origin
        return by if is_step(by) else None


def step_since(lease: Lease | None, clock: Clock) -> timedelta | None:
    """Return how far the wall clock was set since what is on record was written, in this boot; None: it was not, or nobody knows."""
    if lease is None or lease.origin is None:
        return None
    by = _origin(clock.now(), clock.monotonic_s()) - lease.origin
    return by if is_step(by) else None


def _origin(now: datetime, monotonic_s: float) -> datetime:
    return now - timedelta(seconds=monotonic_s)

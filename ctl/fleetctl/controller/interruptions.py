"""What makes a controller begin anew with fresh eyes: its clock was set, or its state was gone for a while."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.core.clock_steps import is_step

if TYPE_CHECKING:
    from fleetctl.clock import Clock
    from fleetctl.ports.lease import Lease, LeaseHolder


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


def step_since(lease: Lease | None, holder: LeaseHolder, clock: Clock) -> timedelta | None:
    """Return how far the wall clock was set since an earlier controller of this boot was last at work; None: not known."""
    if (
        lease is None
        or lease.renewed_monotonic_s is None
        or lease.holder.boot_id != holder.boot_id
        or not holder.boot_id
    ):
        return None
    by = _origin(clock.now(), clock.monotonic_s()) - _origin(lease.renewed_at, lease.renewed_monotonic_s)
    return by if is_step(by) else None


def _origin(now: datetime, monotonic_s: float) -> datetime:
    return now - timedelta(seconds=monotonic_s)

"""When a fleet may be taken over from a holder whose end nobody here can see: once it has been silent for long enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import LockHeldError
from fleetctl.ports.lease import LEASE_TTL_S

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.clock import Clock
    from fleetctl.ports.lease import Lease, LeaseHolder


class LeaseHeldError(LockHeldError):
    """Another machine's controller holds the fleet. `is_alive`: it gave a sign of life while we watched."""

    def __init__(self, message: str, *, is_alive: bool, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.is_alive = is_alive


class LeaseWatch:
    """Watches others' leases by our own steady clock: two machines' wall clocks need not agree."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[
            str, tuple[tuple[int, datetime], float, bool]
        ] = {}  # by fleet: sign, since when, whether a later one

    def check(self, before: Lease | None, holder: LeaseHolder) -> None:
        """Return if `holder` may take over now: the one before released it, shares our locks, or is silent. Raises LeaseHeldError."""
        if before is None or before.released_at is not None or before.holder.shares_locks(holder):
            return
        sign, now_s = (before.epoch, before.renewed_at), self._clock.monotonic_s()
        known = self._seen.get(before.fleet)
        if known is None or known[0] != sign:
            known = (sign, now_s, known is not None)
            self._seen[before.fleet] = known
        silent_s = now_s - known[1]
        if silent_s >= LEASE_TTL_S:
            return
        who = f"process {before.holder.pid} on {before.holder.host}"
        raise LeaseHeldError(
            f"fleet {before.fleet} is kept by {who}, last seen at {before.renewed_at:%F %T} UTC",
            is_alive=known[2],
            hint=f"it is taken over {LEASE_TTL_S:g} s after its last sign of life, or at once: fleetctl state unlock {before.fleet}",
        )

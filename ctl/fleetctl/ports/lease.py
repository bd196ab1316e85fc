"""The lease on a fleet: which controller may write, told by a fencing token that only grows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

# So long a holder on another machine may give no sign of life before its fleet is taken over; it gives one in five
# seconds. Where it lives on all the same, it is fenced by the new epoch: this time is for the common case alone.
LEASE_TTL_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """A controller process, told from every other that ever was or will be."""

    pid: int
    host: str
    boot_id: str  # of the kernel; a pid means nothing after a reboot
    started_at: datetime
    home: str = ""  # the directory of its locks: who shares that shares them

    def shares_locks(self, other: LeaseHolder) -> bool:
        """Whether both cannot hold the fleet's lock at once, so that whoever has it knows that the other is gone."""
        return (self.host, self.boot_id, self.home) == (other.host, other.boot_id, other.home)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One controller's right to write to one fleet. It lasts until another is acquired; an older one is fenced then."""

    fleet: str
    epoch: int  # the fencing token
    holder: LeaseHolder
    acquired_at: datetime
    renewed_at: datetime  # the last sign of life, some seconds old at most while its holder lives
    renewed_monotonic_s: float | None = None  # CLOCK_MONOTONIC of the holder's boot at `renewed_at`
    # The wall clock minus the steady one, as the instants on record were written by; None: of a version that kept none.
    clock_origin: datetime | None = None
    released_at: datetime | None = None  # None: its holder lives, or died without a word
    place: str = ""  # where the store was then; a copy elsewhere is told by it

    @property
    def origin(self) -> datetime | None:
        """By which clock the instants on record were written, as the instant its steady one began; None: not known."""
        if self.clock_origin is not None or self.renewed_monotonic_s is None:
            return self.clock_origin
        return self.renewed_at - timedelta(seconds=self.renewed_monotonic_s)

    @property
    def last_seen_at(self) -> datetime:
        """When its holder was last known to be at work."""
        return self.released_at or self.renewed_at

    def is_living(self, now: datetime) -> bool:
        """Whether its holder gave a sign of life lately, as far as the clocks of both machines agree."""
        return self.released_at is None and (now - self.renewed_at).total_seconds() < LEASE_TTL_S

"""The lease on a fleet: which controller may write, told by a fencing token that only grows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """A controller process, told from every other that ever was or will be."""

    pid: int
    host: str
    boot_id: str  # of the kernel; a pid means nothing after a reboot
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One controller's right to write to one fleet. It lasts until another is acquired; an older one is fenced then."""

    fleet: str
    epoch: int  # the fencing token
    holder: LeaseHolder
    acquired_at: datetime
    renewed_at: datetime  # the last sign of life, some seconds old at most while its holder lives
    renewed_monotonic_s: float | None = None  # CLOCK_MONOTONIC of the holder's boot at `renewed_at`
    released_at: datetime | None = None  # None: its holder lives, or died without a word
    place: str = ""  # where the store was then; a copy elsewhere is told by it

    @property
    def last_seen_at(self) -> datetime:
        """When its holder was last known to be at work."""
        return self.released_at or self.renewed_at

"""What a lane remembers of its arrivals: how bursty they are, and how many replicas they needed lately."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedPeak:
    """When at least so many replicas were last needed."""

    need: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstMemory:
    """Keeps scaling down from undoing what the next burst needs; instants, never tick counts."""

    peaks: tuple[NeedPeak, ...] = ()  # the highest need first; each was seen later than the one before it
    counted_at: datetime | None = None  # when arrivals were last counted
    count: int = 0  # of 10 s, then
    mean: float = 0.0  # of such counts, recent ones first
    squares: float = 0.0  # mean of half the squared difference of one count from the next
    is_settling: bool = False  # the planned replicas have not all been ready yet
    planned_at: datetime | None = None  # when the plan last set the count
    lowered_at: datetime | None = None  # when replicas were last given up
    regrets: int = 0  # how often what was given up was soon needed again
    regretted_at: datetime | None = None

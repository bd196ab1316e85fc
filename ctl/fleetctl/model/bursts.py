"""What a lane remembers of its need: since when it is what it is, what it was lately, and what giving up has cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedLevel:
    """Since when at least so many replicas are needed."""

    need: int
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedPeak:
    """When so many replicas were last needed."""

    need: int
    at: datetime
    is_short: bool = False  # over before replicas that were ordered for it could have served for long
    is_burst: bool = False  # and followed by a calm that needs much less
    is_planned: bool = False  # nobody needed them: the plan has them for its peak, and they are kept as a burst's are


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """How many replicas were late with a load although all of them served."""

    replicas: int
    load_rps: float  # in planned requests
    cost: float  # of a request, over a planned one's
    at: datetime
    times: int = 1  # how often in a row a lane was late so, each time with what it had been given for the time before


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstMemory:
    """Keeps scaling down from undoing what the next burst needs; instants, never tick counts."""

    levels: tuple[NeedLevel, ...] = ()  # rising to what is needed now, each since later than the one before it
    peaks: tuple[NeedPeak, ...] = ()  # needs that have passed
    is_settling: bool = False  # the planned replicas have not all been ready yet
    planned_at: datetime | None = None  # when the plan last set the count
    lowered_at: datetime | None = None  # when replicas were last given up
    regrets: int = 0  # how often what was given up was soon lacking
    regretted_at: datetime | None = None
    shortfall: Shortfall | None = None

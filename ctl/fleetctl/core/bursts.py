"""The burst memory: how long a lane keeps what it needed, by how its arrivals vary and what giving up has cost it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.model.bursts import BurstMemory, NeedPeak

if TYPE_CHECKING:
    from datetime import datetime

MEMORY_SPAN = timedelta(hours=1)
_COUNTED_S = 10.0
_WEIGHT = 1.0 / 90.0  # of a count of 10 s: a quarter of an hour is remembered
_PEAKS_MAX = 32
# What is given up and needed again within so many calms was given up too soon.
_REGRET_CALMS = 5.0
_REGRETS_MAX = 6


def note_arrivals(memory: BurstMemory, count: int, now: datetime, *, planned_cv: float) -> BurstMemory:
    """Return the memory with the arrivals of the last 10 s counted, once every 10 s.

    Differences of successive counts: a slow rise or a step to another level is no burstiness.
    """
    if memory.counted_at is None:
        mean = float(count)
        # What the plan knows of its workload holds until the lane has seen enough of its own.
        return replace(memory, counted_at=now, count=count, mean=mean, squares=max(1.0, planned_cv**2) * mean)
    if (now - memory.counted_at).total_seconds() < _COUNTED_S:
        return memory
    square = (count - memory.count) ** 2 / 2
    return replace(
        memory,
        counted_at=now,
        count=count,
        mean=memory.mean + _WEIGHT * (count - memory.mean),
        squares=memory.squares + _WEIGHT * (square - memory.squares),
    )


def dispersion(memory: BurstMemory) -> float:
    """Return how many times as much as Poisson's the counts of 10 s vary; 1 or more."""
    return max(1.0, memory.squares / memory.mean) if memory.mean > 0 else 1.0


def note_need(memory: BurstMemory, need: int, now: datetime) -> BurstMemory:
    """Return the memory with what is needed now; lower needs that were seen before it are forgotten."""
    kept = tuple(p for p in memory.peaks if p.need > need and now - p.at < MEMORY_SPAN)[:_PEAKS_MAX]
    return replace(memory, peaks=(*kept, NeedPeak(need=need, at=now)))


def needed_lately(memory: BurstMemory, now: datetime, lately_s: float) -> NeedPeak:
    """Return the most that was needed in the last `lately_s`. There must be something noted."""
    return next((p for p in memory.peaks if (now - p.at).total_seconds() < lately_s), memory.peaks[-1])


def calm_s(memory: BurstMemory, *, shortest_s: float) -> float:
    """Return how long a need must have passed before its replicas are given up.

    Longer for bursty arrivals, twice as long after every regret; an hour at most.
    """
    return min(MEMORY_SPAN.total_seconds(), max(shortest_s, 0.0) * dispersion(memory) * 2.0**memory.regrets)


def note_lowered(memory: BurstMemory, now: datetime) -> BurstMemory:
    """Return the memory of a lane that gives replicas up now."""
    return replace(memory, lowered_at=now)


def note_raised(memory: BurstMemory, *, now: datetime, calm: float) -> BurstMemory:
    """Return the memory of a lane that orders replicas now: a regret where it had them not long ago."""
    lowered_at = memory.lowered_at
    if lowered_at is None or (now - lowered_at).total_seconds() > _REGRET_CALMS * calm:
        return memory
    return replace(memory, lowered_at=None, regrets=min(_REGRETS_MAX, memory.regrets + 1), regretted_at=now)


def without_old_regrets(memory: BurstMemory, now: datetime) -> BurstMemory:
    """Return the memory with one regret less for every hour without another."""
    if not memory.regrets or memory.regretted_at is None or now - memory.regretted_at < MEMORY_SPAN:
        return memory
    return replace(memory, regrets=memory.regrets - 1, regretted_at=now)

"""Tells capacity that is missing from capacity that is too small: the one is replaced, the other is overload."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.demand import replicas_needed

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.core.pressure import LanePressure
    from fleetctl.model.decision import LaneMemory
    from fleetctl.model.plan import LanePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """A lane's replicas by how far they are."""

    ready: int
    pending: int  # pending, booting, warming


def note_absence(memory: LaneMemory, counts: Counts, now: datetime, *, given_up_s: float) -> LaneMemory:
    """Return the memory with what the lane had and has lost, and since when.

    What scaling gave up is not missing, nor is what was ordered and has never served. After `given_up_s` without a
    replacement the lane has what it has.
    """
    had = max(counts.ready, min(memory.had_ready, memory.wanted))
    if counts.ready >= max(1, had):
        recovered = now if memory.lost_since is not None else memory.recovered_at
        return replace(memory, had_ready=had, lost_since=None, recovered_at=recovered)
    since = memory.lost_since or now
    if counts.ready and (now - since).total_seconds() > given_up_s:
        return replace(memory, had_ready=counts.ready, lost_since=None, recovered_at=now)
    return replace(memory, had_ready=had, lost_since=since)


def is_absence(memory: LaneMemory, plan: LanePlan, counts: Counts, pressure: LanePressure) -> bool:
    """Whether a lane's waits come of missing replicas: with those it had, it would carry what is offered.

    A lane without any replica is never overloaded: whatever it did to requests, none would be served sooner.
    """
    if memory.lost_since is None:
        return False
    return not counts.ready or replicas_needed(plan, pressure.offered_rps, pressure.lengths) <= memory.had_ready


def judged_s(memory: LaneMemory, now: datetime) -> float | None:
    """Return for how long the lane has had its replicas back: no longer window says how it does. None: for ever."""
    return None if memory.recovered_at is None else (now - memory.recovered_at).total_seconds()

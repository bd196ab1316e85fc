"""Tells capacity that is missing from capacity that is too small: the one is replaced, the other is overload."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.changed import changed
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
    pending: int  # pending, booting, warming; those that are late are not among them
    late: int = 0  # ordered so long ago that others are ordered in their stead


def note_absence(
    memory: LaneMemory, counts: Counts, now: datetime, *, given_up_s: float, oldest_wait_s: float | None = None
) -> LaneMemory:
    """Return the memory with what the lane had and has lost, since when, and until when requests wait that it kept waiting.

    What scaling gave up is not missing, nor is what was ordered and has never served. After `given_up_s` without a
    replacement the lane has what it has. An unknown `oldest_wait_s` (None) ends no wait.
    """
    if counts.ready > memory.had_ready > 0:
        memory = replace(memory, joined_at=now)
    had = max(counts.ready, min(memory.had_ready, memory.wanted))
    if counts.ready >= max(1, had):
        if memory.lost_since is not None:
            memory = replace(memory, lost_since=None, recovered_at=now, caught_up_at=None)
        return _note_caught_up(changed(memory, had_ready=had), now, oldest_wait_s)
    since = memory.lost_since or now
    if counts.ready and (now - since).total_seconds() > given_up_s:
        return replace(memory, had_ready=counts.ready, lost_since=None, recovered_at=now, caught_up_at=now)
    return changed(memory, had_ready=had, lost_since=since)


def _note_caught_up(memory: LaneMemory, now: datetime, oldest_wait_s: float | None) -> LaneMemory:
    """Note the end of the wait of those who came before the replicas did: what they waited for was a boot, not capacity."""
    recovered_at = memory.recovered_at
    if recovered_at is None or memory.caught_up_at is not None or oldest_wait_s is None:
        return memory
    came_before = oldest_wait_s > (now - recovered_at).total_seconds()
    return memory if came_before else replace(memory, caught_up_at=now)


def is_catching_up(memory: LaneMemory) -> bool:
    """Whether requests still wait that came while replicas were missing."""
    return memory.recovered_at is not None and memory.caught_up_at is None


def is_absence(memory: LaneMemory, plan: LanePlan, counts: Counts, pressure: LanePressure) -> bool:
    """Whether a lane's waits come of missing replicas: with those it had, it would carry what is offered.

    A lane without any replica is never overloaded: whatever it did to requests, none would be served sooner.
    """
    if memory.lost_since is None and not is_catching_up(memory):
        return False
    return not counts.ready or replicas_needed(plan, pressure.offered_rps, pressure.lengths) <= memory.had_ready


def judged_s(memory: LaneMemory, now: datetime) -> float | None:
    """Return for how long the lane has had the replicas it has, and nobody who waited for one: no longer window is judged.

    What fewer replicas were late with orders no more of them once another serves. None: for ever.
    """
    if is_catching_up(memory):
        return 0.0
    known = [at for at in (memory.caught_up_at, memory.joined_at) if at is not None]
    return (now - max(known)).total_seconds() if known else None

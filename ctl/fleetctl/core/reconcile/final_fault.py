"""Tells starts that fail the same way however often they are tried from those that backoff is for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.reconcile.replica_step import ReplicaStep
    from fleetctl.model.decision import LaneMemory

# What may have been in the way only then (a port, memory that the last one had not given back) is tried this often.
_REPEATED = 3


def note_fault(memory: LaneMemory, steps: Iterable[ReplicaStep], *, generation: int, has_served: bool) -> LaneMemory:
    """Return the memory with what the failed starts' engines said, and whether trying again is of no use.

    Where a replica that was started the same way has served, the cause lies outside it and may pass.
    """
    faults = [o.replica.engine_fault for o in steps if o.failed_start and o.replica.engine_fault is not None]
    if not faults:
        return memory
    fault = next((each for each in faults if each.kind.is_final), faults[-1])
    is_repeated = fault.kind.is_final_repeated and memory.failures >= _REPEATED
    stays = (fault.kind.is_final or is_repeated) and not has_served
    return replace(memory, engine_fault=fault, final_generation=generation if stays else memory.final_generation)


def forget_earlier(memory: LaneMemory, *, generation: int) -> LaneMemory:
    """Return the memory without the failed starts of an earlier record of the fleet: a new one is what was mended."""
    if memory.failed_generation in (0, generation):
        return memory
    return replace(memory, failures=0, last_failure=None, refused="", failed_generation=0, engine_fault=None)


def is_final(memory: LaneMemory, *, generation: int) -> bool:
    """Whether no replica of the lane can start by this generation of the fleet's record."""
    return memory.engine_fault is not None and memory.final_generation == generation > 0


def why_final(memory: LaneMemory) -> str:
    """Return the cause, and that it is waited for."""
    line = memory.engine_fault.line if memory.engine_fault is not None else ""
    return f"its engine cannot start: {line}; not tried again until the next `fleetctl up`"

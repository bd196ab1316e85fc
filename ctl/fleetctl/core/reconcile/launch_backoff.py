"""How long a lane's next launch waits after failed starts, refused orders and early deaths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.reconcile.limits import backoff_s, early_death_backoff_s, since_s
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from fleetctl.core.reconcile.lane_state import LaneState
    from fleetctl.core.reconcile.replica_step import ReconcileContext
    from fleetctl.model.decision import LaneMemory


def launch_backoff(lane: LaneState, context: ReconcileContext) -> tuple[float, str]:
    """Return how long the lane's next launch still waits, and what for; the first early death makes none wait."""
    memory = lane.memory
    starts, failed = start_backoff(memory, context)
    serves = any(o.state is ReplicaState.READY for o in lane.steps)
    deaths_s = early_death_backoff_s(memory.early_deaths, boot_s=lane.boot_s, serves=serves)
    deaths = deaths_s - since_s(memory.last_early_death, context.now)
    if deaths > starts:
        return deaths, f"{memory.early_deaths} in a row died soon after they were ready"
    return starts, failed


def start_backoff(memory: LaneMemory, context: ReconcileContext) -> tuple[float, str]:
    """Return how long the launch after a failed start, or a refused order, still waits, and what for."""
    grown, failed = context.offerings_grown_at, memory.last_failure
    if memory.refused and failed is not None and grown is not None and grown > failed:
        return 0.0, ""  # it failed for want of a machine, and there are more by now
    starts = backoff_s(memory.failures) - since_s(memory.last_failure, context.now)
    return starts, f"{memory.failures} failed starts in a row"

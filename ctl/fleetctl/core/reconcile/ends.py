"""How the end of a replica is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from fleetctl.model.observation import ObservedReplica


def end_message(replica: ObservedReplica, *, is_leaving: bool) -> str:
    """Return how a node ended, with its engine's last words where nobody asked it to."""
    how = replica.exit_reason or "gone"
    return how if is_leaving or replica.engine_fault is None else f"{how}: {replica.engine_fault.line}"


def death_reason(replica: ObservedReplica, how: str, *, is_leaving: bool) -> str:
    """Return why a replica is no more, for its record."""
    record = replica.record
    if is_leaving:
        return f"{how}: {record.fault}" if record.fault else f"{how}, as it was asked"
    # Taken out of rotation before its end was seen, it is BOOTING again; that is not when it died.
    while_ = "out of rotation" if record.ready_at is not None and record.state is ReplicaState.BOOTING else record.state
    return f"died while {while_}: {how}"

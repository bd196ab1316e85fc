"""How the end of a replica is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from fleetctl.model.observation import ObservedReplica


def end_message(replica: ObservedReplica, *, is_leaving: bool) -> str:
    """Return how a node ended, with its engine's last words where nobody asked it to."""
    how = replica.exit_reason or "gone"
    return how if is_leaving or replica.engine_fault is None else f"{how}: {replica.engine_fault.line}"


def end_code(replica: ObservedReplica, *, is_leaving: bool) -> ReasonCode:
    """Return which kind of end it is: one that was asked for, one that somebody else made of a node that worked, or a death."""
    if replica.record.fault:
        return ReasonCode.DIED
    if is_leaving:
        return ReasonCode.ENDED
    return ReasonCode.EVICTED if replica.taken_by else ReasonCode.DIED


def death_reason(replica: ObservedReplica, how: str, *, is_leaving: bool) -> str:
    """Return why a replica is no more, for its record."""
    record = replica.record
    if is_leaving and record.fault:
        return f"{how}: {record.fault}"
    notice = replica.notice or record.notice
    if notice is not None and notice.is_preemption:  # its drain, where it had begun, was for that
        return f"preempted by {notice.taker or 'another order'}"
    # Taken out of rotation before its end was seen, it is BOOTING again; that is not when it died.
    while_ = "out of rotation" if record.ready_at is not None and record.state is ReplicaState.BOOTING else record.state
    if replica.taken_by:
        return f"evicted while {while_} by {replica.taken_by}"
    return f"{how}, as it was asked" if is_leaving else f"died while {while_}: {how}"

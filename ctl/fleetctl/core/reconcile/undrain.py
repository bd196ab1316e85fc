"""Puts a replica back into rotation whose drain was taken back, as long as it drains and still works."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.disruption import notice_of
from fleetctl.core.reconcile.replica_step import Origin, ReplicaStep
from fleetctl.model.decision import UndrainReplica
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from fleetctl.model.observation import ObservedReplica


def returned(replica: ObservedReplica) -> ReplicaStep | None:
    """Return the way back of a replica that drains; None: nobody took its drain back, or it cannot serve any more."""
    record = replica.record
    if record.drain_code is not ReasonCode.OPERATOR or record.drain_requested:
        return None
    if replica.healthy is False or replica.node is None or notice_of(replica) is not None:
        return None
    reason = "its drain was taken back by a person"
    return ReplicaStep(
        replica=replica,
        state=ReplicaState.READY,
        action=UndrainReplica(replica_id=record.id, code=ReasonCode.OPERATOR, reason=reason),
        origin=Origin.OPERATOR,
    )

"""Puts a replica back into rotation whose drain was taken back, as long as it drains and still works."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.disruption import notice_of
from fleetctl.core.reconcile.replica_step import Origin, ReconcileContext, ReplicaStep
from fleetctl.core.reconcile.restart import is_restart_due
from fleetctl.model.decision import UndrainReplica
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from fleetctl.model.observation import ObservedReplica


def returned(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep | None:
    """Return the way back of a replica that drains; None: nobody took its drain back, or it cannot serve any more.

    One that drains for a restart that is not to be had any more serves on too.
    """
    record = replica.record
    if record.drain_code not in (ReasonCode.OPERATOR, ReasonCode.RESTART) or record.drain_requested:
        return None
    if record.drain_code is ReasonCode.RESTART and is_restart_due(replica, context):
        return None
    if replica.healthy is False or replica.node is None or notice_of(replica) is not None:
        return None
    is_restart = record.drain_code is ReasonCode.RESTART
    reason = "its engine cannot be restarted now" if is_restart else "its drain was taken back by a person"
    return ReplicaStep(
        replica=replica,
        state=ReplicaState.READY,
        action=UndrainReplica(replica_id=record.id, code=ReasonCode.OPERATOR, reason=reason),
        origin=Origin.OPERATOR,
    )

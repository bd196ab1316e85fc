"""Ends a replica whose engine its machine starts no more: nothing is left that its start, or its recovery, could be waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.disruption import notice_of
from fleetctl.core.reconcile.limits import STOP_GRACE_HUNG_S
from fleetctl.core.reconcile.replica_step import Origin, ReplicaStep
from fleetctl.model.decision import StopReplica
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from fleetctl.model.observation import ObservedReplica

_ENDING = (ReplicaState.PENDING, ReplicaState.STOPPING)


def crash_looping(replica: ObservedReplica) -> ReplicaStep | None:
    """Return the stop of a replica whose engine was given up. None: it was not, or its end is on its way.

    It is not restarted where it is: its machine has done that, and it ended again.
    """
    record = replica.record
    if not replica.crash_loop or record.state in _ENDING or replica.restarting:
        return None
    fault = replica.crash_loop
    if replica.engine_fault is not None:
        fault = f"{fault}: {replica.engine_fault.line}"
    is_leaving = record.state is ReplicaState.DRAINING
    return ReplicaStep(
        replica=replica,
        state=ReplicaState.STOPPING,
        action=StopReplica(
            replica_id=record.id, grace_s=STOP_GRACE_HUNG_S, fault=fault, code=ReasonCode.CRASH_LOOP, reason=fault
        ),
        failed_start=record.ready_at is None and not is_leaving and notice_of(replica) is None,
        origin=Origin.CONTROLLER,
    )

"""Whether a replica's node has ended, or is missing for so long that it is told to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.disruption import notice_of
from fleetctl.core.reconcile.ends import death_reason, end_code, end_message
from fleetctl.core.reconcile.limits import (
    ABSENT_READINGS_BELIEVED,
    MISSING_BELIEVED_S,
    STOP_GRACE_LATE_S,
    absence_counts,
    since_s,
)
from fleetctl.core.reconcile.replica_step import ReconcileContext, ReplicaStep
from fleetctl.model.decision import MarkGone, StopReplica
from fleetctl.model.node import NodeState
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.model.observation import ObservedReplica


def gone(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep | None:
    """Return the record of an end: the provider says so, or has not shown the node twice since it was told to end."""
    record = replica.record
    if record.state is ReplicaState.PENDING:
        return None
    is_leaving = record.state in (ReplicaState.DRAINING, ReplicaState.STOPPING)
    if replica.node is NodeState.GONE:
        how = end_message(replica, is_leaving=is_leaving)
    elif record.state is ReplicaState.STOPPING and replica.absent_readings >= ABSENT_READINGS_BELIEVED:
        how = "no longer listed by the provider"
    else:
        return None
    no_failure = is_leaving or bool(replica.taken_by)
    failed = bool(record.fault) or not no_failure
    return ReplicaStep(
        replica=replica,
        state=ReplicaState.FAILED if failed else ReplicaState.GONE,
        action=MarkGone(
            replica_id=record.id,
            failed=failed,
            code=end_code(replica, is_leaving=is_leaving),
            reason=death_reason(replica, how, is_leaving=is_leaving),
        ),
        failed_start=not no_failure and _is_failed_start(replica),
    )


def missing(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep | None:
    """Return the stop of a replica that the provider has not shown for long and that does not answer.

    It is told to end by its id, for its node may be there and billed; until then nothing is recorded as gone.
    """
    record = replica.record
    if record.state in (ReplicaState.PENDING, ReplicaState.STOPPING) or replica.node is not None:
        return None
    # Whoever can be asked is asked first: one just taken out of rotation has not answered afresh yet.
    if replica.healthy or (replica.healthy is None and record.has_address):
        return None
    missing_s = since_s(context.memory.missing_since.get(record.id), context.now)
    if missing_s < MISSING_BELIEVED_S or not absence_counts(replica, listing_ok=context.listing_ok):
        return None
    fault = f"not listed by the provider for {format_duration(missing_s)}, and it does not answer"
    return ReplicaStep(
        replica=replica,
        state=ReplicaState.STOPPING,
        action=StopReplica(
            replica_id=record.id, grace_s=STOP_GRACE_LATE_S, fault=fault, code=ReasonCode.MISSING, reason=fault
        ),
        failed_start=record.state is not ReplicaState.DRAINING and _is_failed_start(replica),
    )


def _is_failed_start(replica: ObservedReplica) -> bool:
    """Whether an end now is a failed start: it has never been ready, and nobody had announced that it would be taken."""
    return replica.record.ready_at is None and notice_of(replica) is None

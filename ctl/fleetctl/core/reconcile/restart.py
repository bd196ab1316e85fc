"""Starts a replica's engine anew on the node that it has: where a person asked for it, and once instead of a replacement.

A restart takes what the engine needs to load; another node takes its boot as well, and gives a GPU back that may not be had
again. It is tried only where the node itself is well, and once in a replica's life: what fails again is replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.disruption import notice_of
from fleetctl.core.reconcile.lane_state import LaneState, unsettled_of
from fleetctl.core.reconcile.limits import STOP_GRACE_HUNG_S, since_s
from fleetctl.core.reconcile.replica_step import Origin, ReconcileContext, ReplicaStep
from fleetctl.model.decision import DrainReplica, StopReplica
from fleetctl.model.engine_fault import EngineFaultKind
from fleetctl.model.engine_restart import RestartPhase
from fleetctl.model.node import NodeState
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.restart_action import RestartReplica

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.observation import ObservedReplica

# Another is ordered in its stead once it has taken as long as a new one does, or this long: a busy machine is late at times.
_ALONE_S_MIN = 60.0


def may_restart(replica: ObservedReplica) -> bool:
    """Whether a replica that has ceased to work is restarted before its node is given up."""
    record = replica.record
    is_first = record.restart is None and record.ready_at is not None
    return is_first and not (record.drain_requested or replica.restart_failed) and can_restart(replica)


def can_restart(replica: ObservedReplica) -> bool:
    """Whether its engine can be started anew: the provider knows how, and nothing speaks against its node."""
    is_noticed = replica.notice is not None or replica.record.notice is not None or notice_of(replica) is not None
    fault = replica.engine_fault
    has_gpu = fault is None or fault.kind is not EngineFaultKind.ACCELERATOR
    return replica.can_restart and replica.node is NodeState.RUNNING and not is_noticed and has_gpu


def is_restart_due(replica: ObservedReplica, context: ReconcileContext) -> bool:
    """Whether a person has asked for a restart that has not been ordered yet, and that is possible."""
    record = replica.record
    is_open = _orders_followed(replica) < context.restarts.get(record.id, 0)
    return is_open and not record.drain_requested and can_restart(replica)


def _orders_followed(replica: ObservedReplica) -> int:
    restart = replica.record.restart
    return restart.orders if restart is not None else 0


def restarted_instead(replica: ObservedReplica, code: ReasonCode, fault: str) -> ReplicaStep | None:
    """Return the restart of a replica that would else be ended for a fault. None: it may not be restarted."""
    if not may_restart(replica):
        return None
    return _restart(replica, code, f"{fault}: its engine is restarted before its node is given up")


def restarted_after_drain(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep | None:
    """Return the restart of a replica whose drain is over. None: it drains in order to leave."""
    code = replica.record.drain_code
    if code is ReasonCode.RESTART and is_restart_due(replica, context):
        return _requested(replica, context)
    if code is ReasonCode.UNHEALTHY_AGAIN:
        return restarted_instead(replica, code, replica.record.reason)
    return None


def restart_step(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep | None:
    """Return what a restart says of a replica that is out of rotation. None: nothing."""
    record, restart = replica.record, replica.record.restart
    if replica.restarting:
        return ReplicaStep(replica=replica, state=record.state)  # until then its old engine may answer
    if is_restart_due(replica, context) and record.is_recovering:
        return _requested(replica, context)
    if restart is None:
        return None
    is_lost = restart.phase is RestartPhase.REQUESTED
    if is_lost and can_restart(replica):
        reason = "nobody knows whether its engine was restarted: ordered again"
        return _restart(
            replica, ReasonCode.RESTART_LOST, reason, by_operator=restart.by_operator, before=restart.started_before
        )
    if (is_lost or restart.phase is RestartPhase.FAILED) and not restart.by_operator:
        return _given_up(replica)
    return None


def returning(lane: LaneState, now: datetime) -> int:
    """Return how many of a lane's replicas are out of rotation, or leave it now, and come back on the nodes that they have.

    Nobody is ordered in their stead while that takes no longer than a new node would.
    """
    return sum(_returns(o, lane, now) for o in unsettled_of(lane) if o.lane == lane.spec.name)


def _returns(step: ReplicaStep, lane: LaneState, now: datetime) -> bool:
    replica, record, action = step.replica, step.replica.record, step.action
    if record.drain_requested or not can_restart(replica):
        return False
    if step.state is ReplicaState.DRAINING:
        code = action.code if isinstance(action, DrainReplica) else record.drain_code
        return code is ReasonCode.RESTART or (code is ReasonCode.UNHEALTHY_AGAIN and may_restart(replica))
    if not record.is_recovering_in(step.state):
        return False
    restart = record.restart
    # Where a person's order could not be followed the engine is as it was, and comes back in a moment.
    if restart is not None and (restart.is_under_way or (restart.by_operator and restart.fault)):
        return since_s(restart.at, now) < max(_ALONE_S_MIN, lane.boot_s)
    return isinstance(action, RestartReplica) or may_restart(replica)


def _requested(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep:
    orders, why = context.restarts[replica.record.id], "restart asked for by a person"
    return _restart(replica, ReasonCode.OPERATOR, why, by_operator=True, orders=orders)


def _restart(
    replica: ObservedReplica,
    code: ReasonCode,
    reason: str,
    *,
    by_operator: bool = False,
    orders: int = 0,
    before: datetime | None = None,
) -> ReplicaStep:
    # One that has ended by itself since and was started again by its machine is left at it.
    before = before or replica.record.changed_at
    action = RestartReplica(
        replica_id=replica.record.id,
        by_operator=by_operator,
        orders=max(orders, _orders_followed(replica)),
        started_before=before,
        code=code,
        reason=reason,
    )
    origin = Origin.OPERATOR if by_operator else Origin.CONTROLLER
    return ReplicaStep(replica=replica, state=ReplicaState.BOOTING, action=action, origin=origin)


def _given_up(replica: ObservedReplica) -> ReplicaStep:
    restart = replica.record.restart
    fault = (restart.fault if restart is not None else "") or "nobody knows what became of it"
    fault = f"its engine could not be restarted: {fault}"
    action = StopReplica(
        replica_id=replica.record.id,
        grace_s=STOP_GRACE_HUNG_S,
        fault=fault,
        code=ReasonCode.RESTART_FAILED,
        reason=fault,
    )
    return ReplicaStep(replica=replica, state=ReplicaState.STOPPING, action=action, origin=Origin.CONTROLLER)

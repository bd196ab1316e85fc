"""One replica's next step, from what was seen of it; no lane is looked at here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.core.disruption import drain_deadline, notice_code, notice_name, notice_of
from fleetctl.core.reconcile.crash_loop import crash_looping
from fleetctl.core.reconcile.health import is_beyond_doubt, unhealthy_reason
from fleetctl.core.reconcile.limits import (
    ABSENT_READINGS_BELIEVED,
    STOP_AGAIN_S,
    STOP_GRACE_HUNG_S,
    STOP_GRACE_LATE_S,
    STOP_GRACE_S,
    UNHEALTHY_AFTER_S,
    readmission_hold_s,
    recoveries_max,
    recovery_limit_s,
    since_s,
    warm_failures_max,
)
from fleetctl.core.reconcile.notices import leaves_rotation_at, leaving_reason
from fleetctl.core.reconcile.replica_step import Origin, ReconcileContext, ReplicaStep, altered
from fleetctl.core.reconcile.restart import (
    is_restart_due,
    restart_step,
    restarted_after_drain,
    restarted_instead,
)
from fleetctl.core.reconcile.undrain import returned
from fleetctl.core.reconcile.vanished import gone, missing
from fleetctl.model.decision import (
    AdmitReplica,
    DrainReplica,
    MarkBooting,
    MarkGone,
    StopReplica,
    WarmReplica,
)
from fleetctl.model.engine_fault import EngineFaultKind
from fleetctl.model.node import NodeState
from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.observation import ObservedReplica
    from fleetctl.model.replica import Replica


# An enum's members are slow to look up, and these are looked up for every replica at every tick.
_READY, _GONE = ReplicaState.READY, NodeState.GONE


def next_step(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep:
    """Return a replica's next step."""
    if _is_undisturbed(replica, context):
        is_settled = replica.notice is None and replica.slowness is None and not replica.record.drain_requested
        return ReplicaStep(replica=replica, state=_READY, is_settled=is_settled)
    ended = gone(replica, context) or missing(replica, context) or crash_looping(replica)
    return ended or _STEPS[replica.record.state](replica, context)


def _is_undisturbed(replica: ObservedReplica, context: ReconcileContext) -> bool:
    """Whether it is one of those, nearly all at nearly every tick, that serve, and nothing is known that could end that."""
    record, node = replica.record, replica.node
    return (
        record.state is _READY
        and node is not None
        and node is not _GONE
        and not replica.crash_loop
        and replica.notice_deadline is None
        and record.notice_deadline is None
        and record.id not in context.memory.unhealthy_since
        and record.id not in context.restarts
        and context.stall_limits_s.get(record.lane, math.inf) > 0.0
        and is_beyond_doubt(replica)
    )


def _pending(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep:
    record = replica.record
    if record.fault:
        return ReplicaStep(
            replica=replica,
            state=ReplicaState.FAILED,
            action=MarkGone(
                replica_id=record.id,
                failed=True,
                code=ReasonCode.CREATE_REFUSED,
                reason=f"its node could not be had: {record.fault}",
            ),
            failed_start=True,
        )
    age_s = since_s(record.requested_at, context.now)
    if age_s >= context.control.start_timeout_s and is_never_made(replica):
        reason = f"no node {format_duration(age_s)} after it was ordered"
        return ReplicaStep(
            replica=replica,
            state=ReplicaState.FAILED,
            action=MarkGone(replica_id=record.id, failed=True, code=ReasonCode.CREATE_OVERDUE, reason=reason),
            failed_start=True,
        )
    return _stay(replica)


def is_never_made(replica: ObservedReplica) -> bool:
    """Whether no node will come of a PENDING replica's order: never sent, or twice not shown since it was cut off."""
    if replica.creating or replica.node not in (None, NodeState.GONE):
        return False
    return not replica.was_requested or replica.absent_readings >= ABSENT_READINGS_BELIEVED


def _booting(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep:
    record = replica.record
    if notice_of(replica) is not None:
        return _noticed_early(replica)
    if (restart := restart_step(replica, context)) is not None:
        return restart
    is_other_version = replica.engine_fault is not None and replica.engine_fault.kind is EngineFaultKind.VERSION
    if replica.healthy and not is_other_version:
        reason = f"healthy {_since_start(record, context)}"
        return ReplicaStep(
            replica=replica,
            state=ReplicaState.WARMING,
            action=_warm(replica, context, ReasonCode.HEALTHY, reason),
        )
    return _failed_start(replica) or _overdue(replica, context) or _stay(replica)


def _since_start(record: Replica, context: ReconcileContext) -> str:
    if record.restart is not None and record.is_restarting:
        return f"{format_duration(since_s(record.restart.at, context.now))} after its restart"
    return f"{format_duration(since_s(record.requested_at, context.now))} after it was ordered"


def _warm(replica: ObservedReplica, context: ReconcileContext, code: ReasonCode, reason: str) -> WarmReplica:
    recoveries = context.memory.unhealthy_count.get(replica.record.id, 0)
    version = replica.reported_version or ""
    return WarmReplica(replica_id=replica.record.id, recoveries=recoveries, version=version, code=code, reason=reason)


def _is_held(replica: ObservedReplica, context: ReconcileContext) -> bool:
    """Whether a replica that was taken out of rotation has not been healthy again for long enough."""
    recoveries = context.memory.unhealthy_count.get(replica.record.id, 0)
    return since_s(replica.record.changed_at, context.now) < readmission_hold_s(recoveries)


def _failed_start(replica: ObservedReplica) -> ReplicaStep | None:
    """Return the stop of a replica whose engine runs and will never be ready: a part that it needs has failed."""
    fault = replica.engine_fault
    if fault is None or replica.record.ready_at is not None:
        return None
    return _stop_faulty(replica, ReasonCode.START_FAILED, f"its engine has failed to start: {fault.line}")


def _warming(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep:
    record = replica.record
    if notice_of(replica) is not None:
        return _noticed_early(replica)
    if (restart := restart_step(replica, context)) is not None:
        return restart
    if replica.warmed and replica.healthy is not False and _is_held(replica, context):
        return _stay(replica)
    if replica.warmed and replica.healthy is not False:
        reason = f"warmed {_since_start(record, context)}"
        return ReplicaStep(
            replica=replica,
            state=ReplicaState.READY,
            action=AdmitReplica(
                replica_id=record.id, code=ReasonCode.WARMED, reason=reason, boot_steps=replica.boot_steps
            ),
        )
    if replica.warm_failures >= warm_failures_max(record):
        return _stop_faulty(replica, ReasonCode.WARM_UP_FAILED, f"{replica.warm_failures} warm-up completions failed")
    # Late but healthy, it is given one attempt to prove itself.
    overdue = _overdue(replica, context) if replica.warm_failures else None
    return overdue or _keep_warming(replica, context)


def _keep_warming(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep:
    record = replica.record
    unhealthy_s = since_s(context.memory.unhealthy_since.get(record.id), context.now)
    if unhealthy_s >= UNHEALTHY_AFTER_S:
        reason = f"/health fails for {format_duration(unhealthy_s)} while warming"
        return ReplicaStep(
            replica=replica,
            state=ReplicaState.BOOTING,
            action=MarkBooting(replica_id=record.id, code=ReasonCode.UNHEALTHY, reason=reason),
        )
    if not replica.warming:
        reason = "no warm-up is on its way"
        return ReplicaStep(
            replica=replica,
            state=ReplicaState.WARMING,
            action=_warm(replica, context, ReasonCode.WARM_UP_LOST, reason),
        )
    return _stay(replica)


def _noticed_early(replica: ObservedReplica) -> ReplicaStep:
    return stop(replica, notice_code(replica), f"{notice_name(replica)} notice before it served")


def _overdue(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep | None:
    """Return the stop of a replica that takes too long: to start, or to come back after it served."""
    record = replica.record
    if record.ready_at is None:
        age_s, limit_s = since_s(record.requested_at, context.now), context.control.start_timeout_s
        code, what = ReasonCode.START_OVERDUE, "not ready"
    elif record.restart is not None and record.is_restarting:
        age_s, limit_s = since_s(record.restart.at, context.now), context.control.start_timeout_s
        code, what = ReasonCode.START_OVERDUE, "not ready after its restart"
    else:
        age_s, limit_s = since_s(record.changed_at, context.now), recovery_limit_s(_stall_limit_s(replica, context))
        code, what = ReasonCode.RECOVERY_OVERDUE, "not recovered"
    # A controller that was away asks first: what it has not looked at yet may long be healthy.
    can_be_probed = record.has_address or replica.node is None
    if age_s < limit_s or (replica.healthy is None and can_be_probed):
        return None
    grace_s = STOP_GRACE_LATE_S if record.ready_at is None else STOP_GRACE_HUNG_S
    fault = f"{what} in {format_duration(age_s)}, the limit is {format_duration(limit_s)}"
    return _stop_faulty(replica, code, fault, grace_s=grace_s)


def _stall_limit_s(replica: ObservedReplica, context: ReconcileContext) -> float:
    """Return how long an engine of the replica's lane may stand still; infinite while no gateway says how it does."""
    return context.stall_limits_s.get(replica.record.lane, math.inf)


def _stop_faulty(
    replica: ObservedReplica, code: ReasonCode, fault: str, *, grace_s: float = STOP_GRACE_LATE_S
) -> ReplicaStep:
    if (restart := restarted_instead(replica, code, fault)) is not None:
        return restart
    return ReplicaStep(
        replica=replica,
        state=ReplicaState.STOPPING,
        action=StopReplica(replica_id=replica.record.id, grace_s=grace_s, fault=fault, code=code, reason=fault),
        failed_start=replica.record.ready_at is None,
        origin=Origin.CONTROLLER,
    )


def _ready(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep:
    record = replica.record
    until = leaves_rotation_at(replica, context)
    unhealthy = _unhealthy_reason(replica, context)
    # One whose node is taken has no time to recover.
    if until is not None and (unhealthy or context.now >= until):
        return drain(replica, context, notice_code(replica), leaving_reason(replica, context.now))
    recoveries = context.memory.unhealthy_count.get(record.id, 0)
    if is_restart_due(replica, context):
        step = drain(replica, context, ReasonCode.RESTART, "restart asked for by a person: it drains first")
        return altered(step, origin=Origin.OPERATOR)
    if unhealthy and recoveries >= recoveries_max(unhealthy.code):
        return drain(
            replica,
            context,
            ReasonCode.UNHEALTHY_AGAIN,
            f"{unhealthy.message}, after {recoveries} {'recovery' if recoveries == 1 else 'recoveries'}: replaced; {replica.in_flight} in flight",
        )
    if unhealthy:
        return ReplicaStep(
            replica=replica,
            state=ReplicaState.BOOTING,
            action=MarkBooting(replica_id=record.id, code=unhealthy.code, reason=unhealthy.message),
            origin=Origin.CONTROLLER,
        )
    return _stay(replica)


def _unhealthy_reason(replica: ObservedReplica, context: ReconcileContext) -> Reason | None:
    record, memory = replica.record, context.memory
    return unhealthy_reason(
        replica,
        unhealthy_since=memory.unhealthy_since.get(record.id),
        now=context.now,
        stall_limit_s=_stall_limit_s(replica, context),
    )


def drain(
    replica: ObservedReplica,
    context: ReconcileContext,
    code: ReasonCode,
    reason: str,
    *,
    timeout_s: float | None = None,
) -> ReplicaStep:
    """Return a serving replica's way out of rotation."""
    timeout_s = context.control.drain_timeout_s if timeout_s is None else timeout_s
    deadline = drain_deadline(context.now, timeout_s, notice_of(replica))
    return ReplicaStep(
        replica=replica,
        state=ReplicaState.DRAINING,
        action=DrainReplica(replica_id=replica.record.id, deadline=deadline, code=code, reason=reason),
        origin=Origin.CONTROLLER,
    )


def stop(replica: ObservedReplica, code: ReasonCode, reason: str) -> ReplicaStep:
    """Return the end of a replica that serves nobody."""
    return ReplicaStep(
        replica=replica,
        state=ReplicaState.STOPPING,
        action=StopReplica(replica_id=replica.record.id, grace_s=STOP_GRACE_S, code=code, reason=reason),
        origin=Origin.CONTROLLER,
    )


def _draining(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep:
    """Return whether a drain is over: nothing in flight that the gateway could still add to, or its time is up."""
    record = replica.record
    # Of a fleet that goes down nobody serves on.
    if not context.is_going_down and (comes_back := _comes_back(replica, context)) is not None:
        return comes_back
    if replica.excluded and replica.in_flight == 0:
        drained_s = since_s(record.changed_at, context.now)
        return _end(
            replica, STOP_GRACE_S, ReasonCode.DRAINED, f"drained in {format_duration(drained_s)}, nothing in flight"
        )
    if record.drain_deadline is None or context.now > record.drain_deadline:
        return _end(
            replica,
            STOP_GRACE_LATE_S,
            ReasonCode.DRAIN_OVERDUE,
            f"its drain is over with {replica.in_flight} in flight",
        )
    return _stay(replica)


def _comes_back(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep | None:
    """Return the way back into rotation of one that drains, at once or by a restart. None: it leaves."""
    way_back = returned(replica, context) if _unhealthy_reason(replica, context) is None else None
    return way_back or (restarted_after_drain(replica, context) if _is_drained(replica, context) else None)


def _is_drained(replica: ObservedReplica, context: ReconcileContext) -> bool:
    deadline = replica.record.drain_deadline
    return (replica.excluded and replica.in_flight == 0) or deadline is None or context.now > deadline


def _end(replica: ObservedReplica, grace_s: float, code: ReasonCode, reason: str) -> ReplicaStep:
    action = StopReplica(replica_id=replica.record.id, grace_s=grace_s, code=code, reason=reason)
    return ReplicaStep(replica=replica, state=ReplicaState.STOPPING, action=action)


def _stopping(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep:
    """Return a second order to end when the first has not been followed."""
    stopping_s = since_s(replica.record.changed_at, context.now)
    if stopping_s >= max(STOP_AGAIN_S, context.stop_deadline_s):
        return _end(
            replica,
            STOP_GRACE_LATE_S,
            ReasonCode.STOP_REPEATED,
            f"still there {format_duration(stopping_s)} after it was told to end",
        )
    return _stay(replica)


def _stay(replica: ObservedReplica) -> ReplicaStep:
    return ReplicaStep(replica=replica, state=replica.record.state)


def _ended(replica: ObservedReplica, _context: ReconcileContext) -> ReplicaStep:
    return _stay(replica)


_STEPS: dict[ReplicaState, Callable[[ObservedReplica, ReconcileContext], ReplicaStep]] = {
    ReplicaState.PENDING: _pending,
    ReplicaState.BOOTING: _booting,
    ReplicaState.WARMING: _warming,
    ReplicaState.READY: _ready,
    ReplicaState.DRAINING: _draining,
    ReplicaState.STOPPING: _stopping,
    ReplicaState.GONE: _ended,
    ReplicaState.FAILED: _ended,
}

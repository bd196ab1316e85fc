"""Who leaves a lane: what is over its target, and those whose node is taken once others serve in their stead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.disruption import notice_code, notice_of, scale_down_order
from fleetctl.core.reconcile.lane_state import LaneState, capacity_of, ready_in, unsettled_of, with_steps
from fleetctl.core.reconcile.lifecycle import drain, stop
from fleetctl.core.reconcile.markets import fallbacks, may_use_spot, replaces_none, substituting
from fleetctl.core.reconcile.notices import leaves_rotation_at, leaving_reason
from fleetctl.core.reconcile.replica_step import unsettled
from fleetctl.core.reconcile.slow import slow_reason
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.reconcile.replica_step import ReconcileContext, ReplicaStep
    from fleetctl.model.reason import Reason


def excess(lane: LaneState, *, at_least: int) -> list[ReplicaStep]:
    """Return what goes, in order: all over the target but what is to take a fallback's place once it is ready."""
    left: Sequence[ReplicaStep] = capacity_of(lane)
    # An order on its way cannot be called back: what it will bring goes then, not what serves now.
    pending = sum(o.state is ReplicaState.PENDING for o in unsettled(left))
    most = lane.target.wanted + _held_surge(lane)
    if len(left) - most - pending <= 0 and at_least <= 0:
        return []
    gone: list[ReplicaStep] = []
    for step in _in_order(lane, left):
        over = len(left) - most - pending - substituting(lane, left)
        if over <= 0 and len(gone) >= at_least:
            break
        gone.append(step)
        left = [o for o in left if o.id != step.id]
    return gone


def _held_surge(lane: LaneState) -> int:
    """Return how many more than it wants a lane keeps whose rollout is held: what a surge began in its place may not serve yet."""
    return lane.rolling.max_surge if lane.rolling is not None and lane.rolling.is_held else 0


def _in_order(lane: LaneState, capacity: Sequence[ReplicaStep]) -> list[ReplicaStep]:
    """Return who goes first: nobody who serves and is wanted before what does not serve yet.

    At the lane's maximum a fallback that serves outlasts what starts in nobody's place.
    """
    by_id = {o.id: o for o in capacity if o.state is not ReplicaState.PENDING}
    baseline = lane.plan.on_demand if may_use_spot(lane) else None
    found = [by_id[r.record.id] for r in scale_down_order((o.replica for o in by_id.values()), baseline=baseline)]
    if lane.rolling is not None:
        outdated = lane.rolling.outdated
        found.sort(key=lambda o: o.id not in outdated)
    if lane.target.wanted >= lane.spec.replicas.max and fallbacks(lane, capacity):
        found.sort(key=lambda o: not replaces_none(o, lane, capacity))
    ready = [o.id for o in found if o.state is ReplicaState.READY]
    needed = set(ready[max(0, len(ready) - lane.target.wanted) :])
    return sorted(found, key=lambda o: o.id in needed)


def held_by_surge(lane: LaneState, leaving: list[ReplicaStep]) -> tuple[list[ReplicaStep], tuple[Reason, ...]]:
    """Return who of those that leave a cordoned node or zone serves on, as nobody does in its stead yet, and the notes."""
    if not leaving:
        return [], ()
    ready = ready_in(lane)
    spare = max(0, len(leaving) - max(0, lane.target.wanted - ready))
    notes = tuple(
        ReasonCode.CORDONED.because(f"{o.id} leaves once another serves in its stead; {ready} elsewhere ready")
        for o in leaving[spare:]
    )
    return leaving[spare:], notes


def fallback_note(lane: LaneState, step: ReplicaStep) -> str:
    """Return why it is this one, where it stood in for spot."""
    is_fallback = any(o.id == step.id for o in fallbacks(lane, capacity_of(lane)))
    return f"; it stood in for spot, beyond the on-demand baseline of {lane.plan.on_demand}" if is_fallback else ""


def drain_noticed(lane: LaneState, context: ReconcileContext) -> tuple[LaneState, tuple[Reason, ...]]:
    """Drain those whose node is taken as far as others serve in their stead; the rest serve until shortly before."""
    noticed = sorted(
        (o for o in unsettled_of(lane) if serves_under_notice(o)),
        key=lambda o: (leaves_rotation_at(o.replica, context) or context.now, o.id),
    )
    if not noticed:
        return lane, ()
    ready = ready_in(lane)
    spare = max(0, len(noticed) - max(0, lane.target.wanted - ready))
    why = f", and {ready} others serve"
    drained = [
        drain(o.replica, context, notice_code(o.replica), leaving_reason(o.replica, context.now, why))
        for o in noticed[:spare]
    ]
    notes = tuple(_serves_on(o, context) for o in noticed[spare:])
    return with_steps(lane, drained), notes


def serves_under_notice(step: ReplicaStep) -> bool:
    """Whether a replica whose node is taken is in rotation, and stays so for now."""
    is_ready = step.state is step.replica.record.state is ReplicaState.READY
    return is_ready and step.action is None and notice_of(step.replica) is not None


def drain_slow(lane: LaneState, context: ReconcileContext) -> tuple[LaneState, tuple[Reason, ...]]:
    """Drain those that stay slow as far as others serve in their stead; nobody but a few probes is sent to the rest."""
    slow = [(o, reason) for o in unsettled_of(lane) if (reason := why_slow(o)) is not None]
    if not slow:
        return lane, ()
    ready = ready_in(lane)
    spare = max(0, len(slow) - max(0, lane.target.wanted - ready))
    drained = [
        drain(
            o.replica, context, reason.code, f"{reason.message}; {ready} others serve; {o.replica.in_flight} in flight"
        )
        for o, reason in slow[:spare]
    ]
    notes = tuple(
        reason.code.because(f"{o.id} is {reason.message}; it is drained once another serves in its stead")
        for o, reason in slow[spare:]
    )
    return with_steps(lane, drained), notes


def why_slow(step: ReplicaStep) -> Reason | None:
    """Return why a replica in rotation, for which nothing else is decided, is to be replaced as slow. None: it is not."""
    is_ready = step.state is step.replica.record.state is ReplicaState.READY
    return slow_reason(step.replica) if is_ready and step.action is None else None


def _serves_on(step: ReplicaStep, context: ReconcileContext) -> Reason:
    until = leaves_rotation_at(step.replica, context) or context.now
    left = format_duration((until - context.now).total_seconds())
    return notice_code(step.replica).because(f"{step.id} serves for {left} more, its node is taken then")


def way_out(step: ReplicaStep, context: ReconcileContext, code: ReasonCode, why: str) -> ReplicaStep:
    """Return the way out: a drain for what has served, the end for what has not."""
    replica = step.replica
    if replica.record.state is ReplicaState.READY:
        return drain(replica, context, code, f"{why}; {replica.in_flight} in flight")
    return stop(replica, code, f"{why}; it serves nobody")

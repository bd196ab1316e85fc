"""Takes a fleet down: drains briefly, ends everything, and says when nothing is left."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from fleetctl.core.reconcile.lifecycle import drain, is_never_made, next_step, stop
from fleetctl.core.reconcile.limits import DOWN_DRAIN_S, UNVERIFIED_LISTINGS, UNVERIFIED_S_MIN, later, since_s
from fleetctl.core.reconcile.orphaned_nodes import stop_orphaned_nodes
from fleetctl.core.reconcile.provider import provider_reasons
from fleetctl.core.reconcile.replica_step import ReconcileContext, ReplicaStep
from fleetctl.core.reconcile.shared import teardown_shared
from fleetctl.model.decision import AnyAction, Decision, LeaveUnverified, MarkGone
from fleetctl.model.gateway_actions import StopGateway
from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import FLEET, GATEWAY, Subject
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation, ObservedReplica

# A gateway that was told to end finishes what it carries; told again when it takes longer than this.
_GATEWAY_STOP_AGAIN_S = 10.0
_NONE_LEFT = "the fleet is down: no replica is left"


def take_down(desired: Desired, observation: Observation, context: ReconcileContext) -> Decision:
    """Return the next step towards nothing. Shadow mode does not hold it back: a person asked for it."""
    live = [r for r in observation.replicas if r.record.state.is_live]
    steps = [_way_out(replica, context) for replica in live]
    actions: list[AnyAction] = [o.action for o in steps if o.action is not None]
    actions += stop_orphaned_nodes(observation, context)
    left = sum(step.state.is_live for step in steps)
    # Who starts them ends them too, once the fleet is forgotten: ended one by one they would come again.
    ends_gateways = left == 0 and not observation.gateways_are_remote
    if ends_gateways and observation.gateway_alive:
        actions.append(StopGateway(code=ReasonCode.FLEET_DOWN, reason=_NONE_LEFT))
    if ends_gateways:
        others = (each for each in observation.gateways if each.number > 1 and each.is_alive)
        actions += [StopGateway(code=ReasonCode.FLEET_DOWN, reason=_NONE_LEFT, number=each.number) for each in others]
    is_settled = not live and not observation.orphaned_nodes
    verification = _verify(observation, context) if is_settled else _Verification()
    shared = teardown_shared(observation, context.now, no_node_left=verification.is_over)
    actions += shared.actions
    serves = observation.is_any_gateway_alive and not observation.gateways_are_remote
    is_down = verification.is_over and not serves and not shared.reasons
    if is_down and verification.fault:
        actions.append(LeaveUnverified(code=ReasonCode.UNVERIFIED, reason=verification.fault))
    reasons = _reasons(desired, steps, observation)
    return Decision(
        actions=tuple(actions),
        memory=replace(context.memory, settled_since=verification.since, rollout=None),
        requeue_at=later(context.now, context.control.tick_s),
        reasons={**reasons, FLEET: (*reasons[FLEET], *verification.reasons, *shared.reasons)},
        is_down=is_down,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verification:
    """Whether a listing has shown that nothing is left, or is no longer waited for."""

    is_over: bool = False
    since: datetime | None = None  # every order is settled and a listing waited for since
    fault: str = ""  # why it is over without one
    reasons: tuple[Reason, ...] = ()


def _verify(observation: Observation, context: ReconcileContext) -> _Verification:
    """Return whether nothing is left, now that every order is settled by its id or token.

    Only a complete listing shows that there is nothing else; one that never comes does not hold up the end.
    """
    if observation.listing_ok:
        return _Verification(is_over=True)
    since = context.memory.settled_since or context.now
    waited_s = since_s(since, context.now)
    limit_s = max(UNVERIFIED_S_MIN, UNVERIFIED_LISTINGS * observation.listing_deadline_s)
    if waited_s >= limit_s:
        fault = (
            f"every order is settled, but no complete listing came in {format_duration(limit_s)} to show that the "
            "provider has nothing else of the fleet"
        )
        return _Verification(is_over=True, since=since, fault=fault)
    waits = f"a complete listing is waited for, {format_duration(math.ceil(limit_s - waited_s))} at most"
    return _Verification(since=since, reasons=(ReasonCode.UNVERIFIED.because(waits),))


def _way_out(replica: ObservedReplica, context: ReconcileContext) -> ReplicaStep:
    state = replica.record.state
    if state in (ReplicaState.DRAINING, ReplicaState.STOPPING):
        return next_step(replica, context)
    if state is ReplicaState.PENDING:
        return _leave_pending(replica)
    following = next_step(replica, context)
    if not following.state.is_live or following.state is ReplicaState.STOPPING:
        return following
    if state is ReplicaState.READY:
        return drain(
            replica,
            context,
            ReasonCode.FLEET_DOWN,
            "the fleet is going down",
            timeout_s=min(DOWN_DRAIN_S, context.control.drain_timeout_s),
        )
    return stop(replica, ReasonCode.FLEET_DOWN, "the fleet is going down")


def _leave_pending(replica: ObservedReplica) -> ReplicaStep:
    """Return the end of an order that brings no node; it is waited for while it may bring one."""
    if not is_never_made(replica):
        # A node that is there is adopted by its token first: it can only be ended by its id.
        return ReplicaStep(replica=replica, state=ReplicaState.PENDING)
    reason = "the fleet is going down; no node was made for it"
    action = MarkGone(replica_id=replica.record.id, failed=False, code=ReasonCode.FLEET_DOWN, reason=reason)
    return ReplicaStep(replica=replica, state=ReplicaState.GONE, action=action)


def _reasons(desired: Desired, steps: list[ReplicaStep], observation: Observation) -> dict[Subject, tuple[Reason, ...]]:
    down = ReasonCode.FLEET_DOWN
    reasons: dict[Subject, tuple[Reason, ...]] = {}
    for spec in desired.profile.lanes:
        of_lane = [o for o in steps if o.replica.record.lane == spec.name and o.state.is_live]
        reasons[Subject.lane(spec.name)] = (down.because(f"going down: {len(of_lane)} left"),)
    reasons[GATEWAY] = (down.because("ends last" if observation.is_any_gateway_alive else "ended"),)
    # How many replicas are left the lanes say; the fleet's reasons are what holds it up, or is left besides.
    orphaned = len(observation.orphaned_nodes)
    besides = (down.because(f"{orphaned} orphaned nodes are left"),) if orphaned else ()
    reasons[FLEET] = (*provider_reasons(observation), *besides)
    return reasons

"""Takes a fleet down: drains briefly, ends everything, and says when nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.reconcile.lifecycle import Outcome, Scene, drain, next_step, stop
from fleetctl.core.reconcile.limits import DOWN_DRAIN_S, later
from fleetctl.core.reconcile.strays import stop_strays
from fleetctl.model.decision import AnyAction, Decision, MarkGone, StopGateway
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation, ObservedReplica

# A gateway that was told to end finishes what it carries; told again when it takes longer than this.
_GATEWAY_STOP_AGAIN_S = 10.0


def take_down(desired: Desired, observation: Observation, scene: Scene) -> Decision:
    """Return the next step towards nothing. Shadow mode does not hold it back: a person asked for it."""
    live = [r for r in observation.replicas if r.record.state.is_live]
    outcomes = [_leave(replica, scene) for replica in live]
    actions: list[AnyAction] = [o.action for o in outcomes if o.action is not None]
    actions += stop_strays(observation, scene)
    left = sum(outcome.state.is_live for outcome in outcomes)
    if left == 0 and observation.gateway_alive:
        actions.append(StopGateway(reason="the fleet is down: no replica is left"))
    is_down = not live and not observation.strays and observation.listing_ok and not observation.gateway_alive
    return Decision(
        actions=tuple(actions),
        memory=scene.memory,
        requeue_at=later(scene.now, scene.control.tick_s),
        reasons=_reasons(desired, outcomes, observation, left),
        is_down=is_down,
    )


def _leave(replica: ObservedReplica, scene: Scene) -> Outcome:
    state = replica.record.state
    if state in (ReplicaState.DRAINING, ReplicaState.STOPPING):
        return next_step(replica, scene)
    if state is ReplicaState.PENDING:
        return _leave_pending(replica, scene)
    following = next_step(replica, scene)
    if not following.state.is_live:
        return following
    if state is ReplicaState.READY:
        return drain(
            replica, scene, "the fleet is going down", timeout_s=min(DOWN_DRAIN_S, scene.control.drain_timeout_s)
        )
    return stop(replica, "the fleet is going down")


def _leave_pending(replica: ObservedReplica, scene: Scene) -> Outcome:
    """Return the end of an order: its node is ended if there is one, else the order is closed."""
    if replica.creating:
        return Outcome(replica=replica, state=ReplicaState.PENDING)
    if replica.node is not None:
        return stop(replica, "the fleet is going down; its create was cut off, its node is there")
    if not scene.listing_ok:
        return Outcome(replica=replica, state=ReplicaState.PENDING)
    reason = "the fleet is going down; no node was made for it"
    action = MarkGone(replica_id=replica.record.id, failed=False, reason=reason)
    return Outcome(replica=replica, state=ReplicaState.GONE, action=action)


def _reasons(desired: Desired, outcomes: list[Outcome], observation: Observation, left: int) -> dict[str, str]:
    reasons = {}
    for spec in desired.profile.lanes:
        ours = [o for o in outcomes if o.replica.record.lane == spec.name and o.state.is_live]
        reasons[spec.name] = f"going down: {len(ours)} left"
    reasons["gateway"] = "ends last" if observation.gateway_alive else "ended"
    listing = "" if observation.listing_ok else "; the provider does not answer, so nothing is believed gone"
    reasons["fleet"] = f"going down: {left} replicas and {len(observation.strays)} strays left{listing}"
    return reasons

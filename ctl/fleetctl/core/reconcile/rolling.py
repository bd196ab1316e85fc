"""Replaces a lane's outdated replicas where a rollout has come to it: new ones first, as far as the caps leave room."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.reconcile.excess import way_out
from fleetctl.core.reconcile.lane_state import LaneRolling, LaneState, capacity_of, ready_in, with_steps
from fleetctl.core.reconcile.limits import backoff_s, since_s
from fleetctl.model.decision import LaunchReplica
from fleetctl.model.profile import Mode
from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.rollout import LanePhase

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.core.reconcile.headroom import Headroom, ReplicaNeed
    from fleetctl.core.reconcile.replica_step import ReconcileContext, ReplicaStep
    from fleetctl.core.rollout.advance import RolloutView
    from fleetctl.model.catalogue import Market
    from fleetctl.model.rollout import Rollout

_AT_WORK = (LanePhase.CANARY, LanePhase.ROLLING)
_LEAVING = (ReplicaState.DRAINING, ReplicaState.STOPPING)


def lane_rolling(lane: str, rollout: Rollout, view: RolloutView, *, wanted: int) -> LaneRolling | None:
    """Return what the rollout asks of a lane; None where it asks nothing now."""
    found = rollout.lanes.get(lane)
    spec = view.desired.profile.control
    if found is None or spec.mode is Mode.SHADOW:
        return None
    if found.phase is LanePhase.COMPLETE and view.desired.revision and view.outdated(lane):
        # A drain that was taken back has brought one into rotation that had been counted as gone.
        found = replace(found, phase=LanePhase.ROLLING)
    if found.phase not in _AT_WORK:
        return None
    is_canary = found.phase is LanePhase.CANARY
    overrides = view.desired.overrides
    holds = overrides.is_rollout_paused or rollout.is_failed or overrides.freeze_of(lane) is not None
    share = min(wanted, spec.rollout.canary.of(wanted)) if is_canary and not holds else 0
    surge, unavailable = spec.rollout.max_surge.of(wanted), spec.rollout.max_unavailable.of(wanted)
    return LaneRolling(
        outdated=frozenset(record.id for record in view.outdated(lane)),
        canaries=frozenset(record.id for record in view.updated(lane)) if is_canary else frozenset(),
        canaries_wanted=share,
        canary_failures=found.failures_in_row,
        canary_wait_s=backoff_s(found.failures_in_row) - since_s(found.last_failure, view.now),
        # Neither would leave the lane as it is for ever; validation refuses that, and older records may have it.
        max_surge=surge if surge or unavailable else 1,
        max_unavailable=unavailable,
        keeps=found.keeps,
        is_replacing=found.phase is LanePhase.ROLLING and not holds,
        is_held=found.phase is LanePhase.ROLLING and holds,
    )


def supersede(
    lane: LaneState, headroom: Headroom, *, need_of: Callable[[LaneState], ReplicaNeed]
) -> tuple[LaneState, tuple[Reason, ...]]:
    """Choose the outdated replicas that are replaced now: as many as may surge, or be missing, at once.

    Where the caps leave no room for one more, one leaves first, if what is measured says that the rest carries the load;
    while something else is leaving, that makes the room.
    """
    rolling = lane.rolling
    if rolling is None or not rolling.is_replacing:
        return lane, ()
    serving, wanted = capacity_of(lane), lane.target.wanted
    old = sorted((o for o in serving if o.id in rolling.outdated), key=_leaves_first)
    if not old or len(old) <= rolling.keeps:
        return lane, ()
    new, need = len(serving) - len(old), need_of(lane)
    lacking = min(wanted, wanted + rolling.max_surge - len(old)) - new
    refusal = headroom.refusal(need) if lacking > 0 else ""
    launches = 0 if refusal else max(0, lacking)
    kept = min(len(old), max(0, wanted - new - launches))
    leaving = sum(o.replica.record.state in _LEAVING for o in lane.steps)
    may_miss = _may_miss(lane, rolling, leaving=leaving, is_refused=bool(refusal))
    notes: tuple[Reason, ...] = ()
    if refusal and headroom.frees(need):
        notes = (ReasonCode.ROLLOUT_WAITS.because(f"no room for one more until what is leaving has ended: {refusal}"),)
    elif refusal and kept == len(old) and not rolling.max_unavailable:
        may_miss, notes = _without_room(lane, refusal, headroom.remedy(need))
    if may_miss and kept == len(old) and new < wanted:
        ready = sum(o.state is o.replica.record.state is ReplicaState.READY for o in serving)
        kept -= max(0, min(may_miss, len(old), ready - (wanted - may_miss)))
    if refusal and kept == len(old) and not notes and not leaving:
        notes = (
            ReasonCode.ROLLOUT_WAITS.because(
                f"no room for one more ({refusal}), and too few are there: {headroom.remedy(need)}"
            ),
        )
    kept = max(kept, rolling.keeps)
    gone = frozenset(o.id for o in old[: len(old) - kept])
    return replace(lane, superseded=gone, may_miss=may_miss), notes


def _may_miss(lane: LaneState, rolling: LaneRolling, *, leaving: int, is_refused: bool) -> int:
    """Return how many of those wanted may be missing by the profile.

    What load wants beyond the plan and the caps have no room for is missing anyway. The last one that is there serves on
    then, and wherever another may come beside it: what leaves makes room for the next.
    """
    if not rolling.max_unavailable:
        return 0
    wanted = lane.target.wanted
    attainable = min(wanted, lane.requested) if is_refused else wanted
    may_miss = rolling.max_unavailable
    if attainable < wanted or (rolling.max_surge and (leaving or not is_refused)):
        may_miss = min(may_miss, max(0, attainable - 1))
    return may_miss + wanted - attainable


def _without_room(lane: LaneState, refusal: str, remedy: str) -> tuple[int, tuple[Reason, ...]]:
    """Return how many may leave before others come although the profile does not say so, and why."""
    wanted, need = lane.target.wanted, lane.target.need
    need = max(1, wanted if need is None else min(need, wanted))
    if wanted - 1 >= need:
        text = f"no room to surge, {refusal}: one leaves first, as {need} of {wanted} carry what is measured"
        return 1, (ReasonCode.ROLLOUT_WAITS.because(text),)
    text = f"no room to surge, {refusal}; and {need} of {wanted} are needed: {remedy}, or set max_unavailable"
    return 0, (ReasonCode.ROLLOUT_WAITS.because(text),)


def _leaves_first(step: ReplicaStep) -> tuple[bool, float, str]:
    """Return what orders outdated replicas: those that serve nobody go first, then the oldest."""
    record = step.replica.record
    return record.state is ReplicaState.READY, record.created_at.timestamp(), record.id


def drain_superseded(lane: LaneState, context: ReconcileContext) -> LaneState:
    """Drain what is replaced as far as others serve in its stead; what never served goes at once."""
    leaving = [o for o in lane.steps if o.id in lane.superseded and o.action is None] if lane.superseded else []
    if not leaving:
        return lane
    ready = ready_in(lane)
    serving = [o for o in leaving if o.replica.record.state is ReplicaState.READY]
    short = max(0, lane.target.wanted - lane.may_miss - ready)
    gone = [(o, f"of an earlier revision, {ready} others serve") for o in serving[: max(0, len(serving) - short)]]
    early = (ReplicaState.BOOTING, ReplicaState.WARMING)
    gone += [(o, "of an earlier revision") for o in leaving if o.replica.record.state in early]
    return with_steps(lane, [way_out(o, context, ReasonCode.OUTDATED, why) for o, why in gone])


def canary_launches(
    lane: LaneState, headroom: Headroom, *, market: Market, need: ReplicaNeed
) -> tuple[list[LaunchReplica], Headroom, tuple[Reason, ...]]:
    """Return the canaries to launch, the headroom they leave, and why there are no more."""
    rolling = lane.rolling
    if rolling is None or lane.blocked:
        return [], headroom, ()
    launches: list[LaunchReplica] = []
    for number in range(len(rolling.canaries), rolling.canaries_wanted):
        if headroom.is_coming(need):
            break
        refusal = headroom.refusal(need)
        if refusal:
            is_passing = headroom.frees(need)
            until = " until what is leaving has ended" if is_passing else ""
            text = f"no room for a canary beside the others{until}: {refusal}"
            return launches, headroom, (ReasonCode.ROLLOUT_WAITS.because(text),)
        reason = f"canary {number + 1} of {rolling.canaries_wanted} of the new revision"
        launches.append(
            LaunchReplica(
                lane=lane.spec.name, market=market, is_canary=True, code=ReasonCode.ROLLOUT_CANARY, reason=reason
            )
        )
        headroom = headroom.without(need)
    return launches, headroom, ()

"""A decision's part about the rollout: how far it is, what is in force meanwhile, and what is done where it has failed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.changed import changed
from fleetctl.core.reconcile.limits import since_s
from fleetctl.core.reconcile.replica_step import unsettled
from fleetctl.core.reconcile.rolling import lane_rolling
from fleetctl.core.rollout.advance import ReplicaFailure, RolloutView, advance
from fleetctl.core.rollout.in_force import in_force
from fleetctl.core.rollout.progress import held_by
from fleetctl.model.decision import AnyAction, MarkGone, ReportRollout, RollBack
from fleetctl.model.desired import Desired
from fleetctl.model.profile import Mode, OnFailure
from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.rollout import LanePhase, Rollout, rollback_reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fleetctl.core.reconcile.lane_state import LaneDecision, LaneRolling
    from fleetctl.core.reconcile.replica_step import ReconcileContext, ReplicaStep
    from fleetctl.model.observation import Observation

# A rollback that was not written down is asked for again.
_AGAIN_S = 10.0
# What says nothing of the revision: no node was to be had, or it has vanished.
_NOT_ITS_DOING = frozenset({ReasonCode.CREATE_REFUSED, ReasonCode.CREATE_OVERDUE, ReasonCode.MISSING})
_LEAVING = (ReplicaState.DRAINING, ReplicaState.STOPPING)
_WAITS = (ReasonCode.ROLLOUT_WAITS, ReasonCode.LAUNCH_BLOCKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolled:
    """What a rollout makes of a decision."""

    desired: Desired  # as in force now
    rollout: Rollout
    view: RolloutView
    actions: tuple[AnyAction, ...] = ()
    reasons: tuple[Reason, ...] = ()

    def lane_rolling(self, lane: str, *, wanted: int) -> LaneRolling | None:
        """Return what the rollout asks of a lane now."""
        return lane_rolling(lane, self.rollout, self.view, wanted=wanted)

    def after(self, decided: Mapping[str, LaneDecision], retired: Sequence[ReplicaStep]) -> Rollout:
        """Return the rollout with what the lanes' decisions say of it: whether the caps leave room, and what it waits for."""
        waits = {
            name: text
            for name, lane in self.rollout.lanes.items()
            if name in decided and not lane.is_over and (text := _waits_for(decided[name]))
        }
        starting = [name for name, lane in self.rollout.lanes.items() if lane.phase is LanePhase.STARTING]
        lacks_room = any(lane.lacks_room for lane in decided.values())
        lacks_start_room = any(decided[name].is_capped for name in starting if name in decided)
        if lacks_room or lacks_start_room:
            # Who begins to leave by this decision makes room, though the caps do not show it yet.
            room_comes = any(map(_begins_to_leave, (*retired, *(o for lane in decided.values() for o in lane.steps))))
            lacks_room, lacks_start_room = lacks_room and not room_comes, lacks_start_room and not room_comes
        return changed(self.rollout, lacks_room=lacks_room, lacks_start_room=lacks_start_room, waits=waits)


def _begins_to_leave(step: ReplicaStep) -> bool:
    return step.state in _LEAVING and step.replica.record.state not in _LEAVING


def _waits_for(decided: LaneDecision) -> str:
    """Return why a lane is neither replaced nor started further; what the rollout itself says goes first."""
    messages = (note.message for code in _WAITS for note in decided.notes if note.code is code)
    return next(messages, "")


def roll(desired: Desired, observation: Observation, context: ReconcileContext, steps: Sequence[ReplicaStep]) -> Rolled:
    """Return how far the rollout is, and the fleet as it should be meanwhile."""
    before = context.memory.rollout
    view = RolloutView(
        desired=desired,
        now=context.now,
        records=tuple([r.record for r in observation.replicas]),
        lanes=context.memory.lanes,
        gateway=observation.gateway,
        failures=tuple(_failures(steps)),
    )
    rollout = advance(before, view)
    actions: list[AnyAction] = list(_reports(before, rollout))
    if _must_roll_back(rollout, desired, context) and rollout.stable is not None:
        reason = rollback_reason(rollout.revision, rollout.stable, rollout.reason)
        roll_back = RollBack(revision=rollout.revision, to=rollout.stable, code=ReasonCode.ROLLED_BACK, reason=reason)
        actions.append(roll_back)
        rollout = replace(rollout, rolled_back_at=context.now)
    return Rolled(
        desired=in_force(desired, rollout),
        rollout=rollout,
        view=view,
        actions=tuple(actions),
        reasons=tuple(_reasons(rollout, desired)),
    )


def _failures(steps: Sequence[ReplicaStep]) -> Iterator[ReplicaFailure]:
    for step in unsettled(steps):
        action, fault = step.action, step.replica.engine_fault
        # Who was on the way out has been counted when that began, or left by no fault of its own.
        was_leaving = step.replica.record.state in _LEAVING
        is_death = isinstance(action, MarkGone) and action.code is ReasonCode.DIED and not was_leaving
        died = is_death and step.replica.notice_deadline is None
        if action is None or not (step.failed_start or died or step.is_convicted):
            continue
        if fault is not None or action.code not in _NOT_ITS_DOING:
            reason = fault.line if fault is not None and fault.line else action.reason
            is_final = step.failed_start and fault is not None and fault.kind.is_final
            yield ReplicaFailure(record=step.replica.record, reason=reason, is_final=is_final)


def _must_roll_back(rollout: Rollout, desired: Desired, context: ReconcileContext) -> bool:
    if not rollout.is_failed or desired.stable is None:
        return False
    is_asked = rollout.rolled_back_at is not None and since_s(rollout.rolled_back_at, context.now) < _AGAIN_S
    return desired.profile.control.rollout.on_failure is OnFailure.ROLLBACK and not is_asked


def _reports(before: Rollout | None, after: Rollout) -> Iterator[ReportRollout]:
    """Return what is news of a rollout that there is something to tell of."""
    if after.stable is None:
        return
    is_new = before is None or before.revision != after.revision
    known = {} if before is None or is_new else before.lanes
    if is_new and not after.is_over:
        undoing = f", as revision {after.undoes} failed: {after.reason}" if after.undoes is not None else ""
        code = ReasonCode.ROLLOUT if after.undoes is None else ReasonCode.ROLLED_BACK
        yield ReportRollout(code=code, reason=f"revision {after.stable} -> {after.revision} begins{undoing}")
    for name, lane in after.lanes.items():
        was = known[name].phase if name in known else LanePhase.COMPLETE
        if lane.phase is not was and lane.phase is not LanePhase.WAITING:
            note = f": {lane.note}" if lane.note else ""
            yield ReportRollout(
                lane=name, code=ReasonCode.ROLLOUT, reason=f"revision {after.revision} {lane.phase}{note}"
            )
    if after.is_failed and (is_new or before is None or not before.is_failed):
        yield ReportRollout(code=ReasonCode.ROLLOUT_FAILED, reason=f"revision {after.revision}: {after.reason}")
    if after.is_over and before is not None and (is_new or not before.is_over) and not is_new:
        yield ReportRollout(code=ReasonCode.ROLLOUT, reason=f"revision {after.revision} is complete")


def _reasons(rollout: Rollout, desired: Desired) -> Iterator[Reason]:
    """Return what the fleet's reasons say of a rollout that is under way."""
    if rollout.is_over or rollout.stable is None:
        return
    if rollout.is_failed:
        yield ReasonCode.ROLLOUT_FAILED.because(f"revision {rollout.revision} failed: {rollout.reason}")
    elif desired.overrides.is_rollout_paused or desired.overrides.freezes:
        why = " and ".join(held_by(desired))
        yield ReasonCode.ROLLOUT.because(f"the rollout of revision {rollout.revision} waits: {why}")
    elif desired.profile.control.mode is Mode.SHADOW:
        yield ReasonCode.ROLLOUT.because(f"revision {rollout.revision} is not rolled out: in shadow mode nothing is")
        return
    for name, lane in rollout.lanes.items():
        if not lane.is_over and lane.phase is not LanePhase.WAITING:
            note = f", {lane.note}" if lane.note else ""
            yield ReasonCode.ROLLOUT.because(f"revision {rollout.revision}: {name} {lane.phase}{note}")

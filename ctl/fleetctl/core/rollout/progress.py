"""What the faces show of a rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.rollout.advance import order
from fleetctl.core.rollout.in_force import digests
from fleetctl.model.desired import WHOLE_FLEET
from fleetctl.model.profile import Mode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.rollout import LanePhase, LaneRolloutStatus, Rollout, RolloutPhase, RolloutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.desired import Desired
    from fleetctl.model.replica import Replica


def rollout_status(desired: Desired, rollout: Rollout | None, records: Sequence[Replica]) -> RolloutStatus | None:
    """Return how far a fleet's newest rollout is. None: there has been none between two revisions."""
    if rollout is None or rollout.stable is None:
        return None
    names = [*order(rollout, desired), *(name for name, lane in rollout.lanes.items() if not lane.digest)]
    known = digests(desired.profile, desired.plan)
    return RolloutStatus(
        phase=phase_of(rollout, is_paused=is_held(desired)),
        revision=rollout.revision,
        stable=rollout.stable,
        lanes=tuple(_lane(name, rollout, known.get(name, ""), records) for name in names),
        started_at=rollout.started_at,
        ended_at=rollout.ended_at,
        undoes=rollout.undoes,
        reason=rollout.reason,
        is_paused=is_held(desired),
        held_by=held_by(desired),
        on_failure=desired.profile.control.rollout.on_failure,
    )


def is_held(desired: Desired) -> bool:
    """Whether people hold a rollout still: it is paused, the fleet or a lane is frozen, or the controller only watches."""
    return bool(held_by(desired))


def held_by(desired: Desired) -> tuple[str, ...]:
    """Return what people hold a rollout still by, a clause each; empty: nothing. One lane's freeze holds the fleet's rollout."""
    overrides = desired.overrides
    frozen = (
        f"{'the fleet' if lane == WHOLE_FLEET else f'lane {lane}'} is frozen{terms.text}"
        for lane, terms in overrides.freezes.items()
    )
    return (
        *(("it is paused by hand",) if overrides.is_rollout_paused else ()),
        *frozen,
        *(("in shadow mode nothing is rolled out",) if desired.profile.control.mode is Mode.SHADOW else ()),
    )


def phase_of(rollout: Rollout, *, is_paused: bool) -> RolloutPhase:
    """Return a rollout's phase in one word."""
    if rollout.is_over:
        return RolloutPhase.COMPLETE
    if rollout.is_failed:
        return RolloutPhase.FAILED
    if is_paused:
        return RolloutPhase.PAUSED
    if rollout.undoes is not None:
        return RolloutPhase.ROLLING_BACK
    is_canary = any(lane.phase is LanePhase.CANARY for lane in rollout.lanes.values())
    return RolloutPhase.CANARY if is_canary else RolloutPhase.ROLLING


def _lane(name: str, rollout: Rollout, digest: str, records: Sequence[Replica]) -> LaneRolloutStatus:
    lane = rollout.lanes[name]
    waits = "" if lane.is_over else rollout.waits.get(name, "")
    own = [record for record in records if record.lane == name and record.state.counts_as_capacity]
    updated = [record for record in own if digest and record.launch_digest == digest]
    return LaneRolloutStatus(
        lane=name,
        phase=lane.phase,
        updated=len(updated),
        updated_ready=sum(record.state is ReplicaState.READY for record in updated),
        outdated=len(own) - len(updated),
        note="; ".join(text for text in (lane.note, waits) if text),
    )

"""Steps on a rollout: hold it, let it go on, go back, and wait for its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from fleetctl.errors import RolloutFailedError
from fleetctl.model.runbook_steps import RolloutChoice
from fleetctl.operations import fleets, lifecycle, rollouts
from fleetctl.operations.lookup import running_fleet
from fleetctl.operations.readiness import refuse_failed_rollout

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.runbook import Json
    from fleetctl.model.runbook_steps import RolloutStep
    from fleetctl.operations.rollouts import RolloutHold
    from fleetctl.runbooks.context import StepContext


def rollout(context: StepContext, wanted: RolloutStep) -> dict[str, Json]:
    """Hold a rollout, let it go on, go back to an earlier revision, or wait until one is in force."""
    site, fleet = context.site, context.fleet
    match wanted.choice:
        case RolloutChoice.PAUSE:
            return _held(context, rollouts.pause(site, fleet))
        case RolloutChoice.RESUME:
            return _held(context, rollouts.resume(site, fleet))
        case RolloutChoice.UNDO:
            return _undo(context, wanted)
        case RolloutChoice.WAIT:
            return _wait(context, wanted)
    assert_never(wanted.choice)


def _held(context: StepContext, change: RolloutHold) -> dict[str, Json]:
    if change.held_by and not change.is_paused:
        context.company.tell(f"{change.fleet}: the rollout is held still: {' and '.join(change.held_by)}")
    return {"was_paused": change.was_paused, "held_by": list(change.held_by)}


def follow(context: StepContext, desired: Desired) -> None:
    """Wait until a record of the fleet is in force: its rollout complete, everything ready. Raises RolloutFailedError."""
    for seen in lifecycle.follow_up(
        context.site,
        context.fleet,
        timeout_s=context.left_s,
        generation=desired.generation,
        revision=desired.revision,
    ):
        lanes = ", ".join(f"{lane.name} {lane.ready}/{lane.wanted}" for lane in seen.lanes)
        context.company.tell(f"{context.fleet}: revision {desired.revision}, replicas ready: {lanes}")


def refuse_rolled_back(context: StepContext) -> None:
    """Raise RolloutFailedError where what was asked for since the step began has failed and been taken back by itself."""
    seen = fleets.status(context.site, context.fleet)
    if seen.rollout is not None and seen.rollout.undoes and seen.rollout.started_at >= context.record.started_at:
        refuse_failed_rollout(seen, revision=seen.rollout.undoes)


def _undo(context: StepContext, wanted: RolloutStep) -> dict[str, Json]:
    """Go back once: a second undo would bring back what the first took away, so it is asked whether there was one."""
    site, fleet = context.site, context.fleet
    made = [each for each in rollouts.history(site, fleet) if each.is_in_force and each.is_undo]
    if any(each.at >= context.record.started_at for each in made):
        after = running_fleet(site, fleet)
    else:
        _, after = rollouts.undo(site, fleet, to=wanted.to, override_freeze=wanted.override_freeze)
    if wanted.wait:
        follow(context, after)
    return {"revision": after.revision}


def _wait(context: StepContext, wanted: RolloutStep) -> dict[str, Json]:
    """Wait for a revision, by default the last that was asked for. Raises RolloutFailedError where it does not last."""
    site, fleet = context.site, context.fleet
    desired, seen = running_fleet(site, fleet), fleets.status(site, fleet)
    undone = seen.rollout.undoes if seen.rollout is not None else None
    revision = wanted.to or undone or desired.revision
    refuse_failed_rollout(seen, revision=revision)
    if revision == desired.revision:
        follow(context, desired)
        desired = running_fleet(site, fleet)
    if revision != desired.revision:
        raise RolloutFailedError(
            f"revision {revision} is not in force: revision {desired.revision} is",
            hint=f"see who changed it, and why: fleetctl rollout history {fleet}",
        )
    return {"revision": revision}

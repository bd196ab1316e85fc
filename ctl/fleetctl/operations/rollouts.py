"""Rollouts as people see and hold them: how far one is, pause, resume, undo, and what every revision changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from fleetctl.config.profile_changes import ProfileChange, diff_profiles
from fleetctl.core.plan.changes import diff_plans
from fleetctl.core.rollout.progress import held_by
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.profile import Mode
from fleetctl.model.rollout import Revision, RolloutStatus
from fleetctl.model.subject import FLEET
from fleetctl.operations.audit import audited
from fleetctl.operations.commands import ensure_controller, exclusive, journal_command, wake_controller
from fleetctl.operations.fleets import status
from fleetctl.operations.freezing import refuse_frozen, thaw_command
from fleetctl.operations.lookup import running_fleet
from fleetctl.ports.records import Collection, revision_key
from fleetctl.views.plan_changes import format_plan_value

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.operations.site import Site

_REVISIONS_MAX = 200
_UNDO = "undo of revision"  # so begins why a revision is there that `undo` put in force


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionChange:
    """A revision, and what it changed of the one before."""

    number: int
    at: datetime
    by: str  # empty: the controller
    why: str  # empty: an `up`
    is_in_force: bool
    changes: tuple[ProfileChange, ...] = ()  # of the profile's keys; then of what was planned, as plan.LANE.FIELD

    @property
    def is_undo(self) -> bool:
        """Whether somebody went back to it."""
        return self.why.startswith(_UNDO)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutHold:
    """Whether a rollout is held by hand, before and after, and what else people hold it still by."""

    fleet: str
    was_paused: bool
    is_paused: bool
    held_by: tuple[str, ...] = ()  # after it, a clause each; empty: it goes on
    commands: tuple[str, ...] = ()  # what ends that, as it is typed


def rollout_status(site: Site, fleet: str) -> RolloutStatus:
    """Return how far the newest rollout is. Raises NotFoundError where there was none between two revisions."""
    found = status(site, fleet).rollout
    if found is None:
        raise NotFoundError(
            f"fleet {fleet} has had no rollout yet",
            hint="change its profile, and bring it up again: fleetctl up PROFILE",
        )
    return found


def pause(site: Site, fleet: str, *, dry_run: bool = False) -> RolloutHold:
    """Hold a rollout where it is: no lane goes further, nothing is rolled back. Survives restarts, until `resume` or `up`."""
    return _hold(site, fleet, is_paused=True, dry_run=dry_run)


def resume(site: Site, fleet: str, *, dry_run: bool = False) -> RolloutHold:
    """Let a rollout go on; one that failed and was left as it is, is tried again.

    A freeze and shadow mode hold it beside the pause: what is returned says so.
    """
    return _hold(site, fleet, is_paused=False, dry_run=dry_run)


def _hold(site: Site, fleet: str, *, is_paused: bool, dry_run: bool) -> RolloutHold:
    action = "rollout-pause" if is_paused else "rollout-resume"
    with audited(site, action, fleet=fleet, dry_run=dry_run) as attempt, exclusive(site, fleet):
        desired = running_fleet(site, fleet)
        _refuse_over(site, desired, action=action.removeprefix("rollout-"))
        now = site.clock.now()
        overrides = replace(desired.overrides, is_rollout_paused=is_paused)
        if not is_paused:
            overrides = replace(overrides, rollout_resumed_at=now)
        change = _held(replace(desired, overrides=overrides), was_paused=desired.overrides.is_rollout_paused)
        if dry_run:
            return change
        site.store.set_overrides(fleet, overrides, now=now)
        text = "paused" if is_paused else "resumed" if change.held_by else "goes on"
        attempt.note(f"rollout: {text}")
        still = f"; it waits still: {' and '.join(change.held_by)}" if change.held_by and not is_paused else ""
        journal_command(site, fleet, subject=FLEET, action=action, reason=f"the rollout {text}, by hand{still}")
    wake_controller(site, fleet)
    return change


def _held(after: Desired, *, was_paused: bool) -> RolloutHold:
    """Return whether a rollout goes on by the fleet's record as it will be, and what would have it go on."""
    fleet, overrides = after.fleet, after.overrides
    is_shadow = after.profile.control.mode is Mode.SHADOW
    return RolloutHold(
        fleet=fleet,
        was_paused=was_paused,
        is_paused=overrides.is_rollout_paused,
        held_by=held_by(after),
        commands=(
            *((f"fleetctl rollout resume {fleet}",) if overrides.is_rollout_paused else ()),
            *(thaw_command(fleet, lane) for lane in overrides.freezes),
            *(("fleetctl up PROFILE, with control.mode: active in it",) if is_shadow else ()),
        ),
    )


def _refuse_over(site: Site, desired: Desired, *, action: str) -> None:
    """Refuse to hold what is over or never was. Raises NotFoundError."""
    rollout = site.store.memory(desired.fleet).rollout
    if rollout is None or rollout.revision != desired.revision:
        is_under_way = desired.revision > 1  # asked for just now: the controller has not begun it
    else:
        is_under_way = rollout.stable is not None and not rollout.is_over
    if is_under_way or desired.overrides.is_rollout_paused:
        return
    name = desired.fleet
    raise NotFoundError(
        f"fleet {name} has no rollout under way to {action}: revision {desired.revision} is in force",
        hint=f"see: fleetctl rollout history {name}; to hold the fleet still: fleetctl freeze {name} --reason WHY",
    )


def undo(
    site: Site, fleet: str, *, to: int | None = None, override_freeze: bool = False, dry_run: bool = False
) -> tuple[Revision, Desired]:
    """Put an earlier revision in force again, as a new one; left out, the last complete one. Returns it and the fleet's record.

    Raises NotFoundError (no such revision is kept), ConfigError (it is in force already), FrozenError.
    """
    with audited(site, "rollout-undo", fleet=fleet, dry_run=dry_run) as attempt, exclusive(site, fleet):
        desired = running_fleet(site, fleet)
        earlier = earlier_revision(site, fleet, to=to)
        if (earlier.profile, earlier.plan) == (desired.profile, desired.plan):
            raise ConfigError(f"revision {earlier.number} is what is in force", hint="see: fleetctl rollout history")
        lanes = tuple(spec.name for spec in desired.profile.lanes)
        refuse_frozen(desired, lanes, "going back is held back", override=override_freeze)
        if dry_run:
            return earlier, desired
        why = f"{_UNDO} {desired.revision}: back to {earlier.number}"
        after = site.store.put_fleet(earlier.profile, earlier.plan, now=site.clock.now(), by=site.actor.name, why=why)
        attempt.note(f"fleet: revision {desired.revision} -> {after.revision}, {why}")
        journal_command(
            site, fleet, subject=FLEET, action="rollout-undo", reason=f"{why}, as revision {after.revision}"
        )
        ensure_controller(site, fleet)
    site.host.wake(fleet)
    return earlier, after


def earlier_revision(site: Site, fleet: str, *, to: int | None = None) -> Revision:
    """Return the revision that `undo` would put in force again. Raises NotFoundError."""
    desired = running_fleet(site, fleet)
    return _revision(site, desired, _before(site, desired) if to is None else to)


def history(site: Site, fleet: str) -> tuple[RevisionChange, ...]:
    """Return a fleet's revisions, oldest first, each with what it changed of the one before."""
    desired = running_fleet(site, fleet)
    found = _revisions(site, fleet)
    pairs = zip((None, *found), found, strict=False)
    return tuple(
        RevisionChange(
            number=after.number,
            at=after.at,
            by=after.by,
            why=after.why,
            is_in_force=after.number == desired.revision,
            changes=_changes(before, after) if before is not None else (),
        )
        for before, after in pairs
    )


def _changes(before: Revision, after: Revision) -> tuple[ProfileChange, ...]:
    planned = (
        ProfileChange(
            key=".".join(part for part in ("plan", change.lane, change.field.value) if part),
            old=format_plan_value(change.field, change.old),
            new=format_plan_value(change.field, change.new),
        )
        for change in diff_plans(before.plan, after.plan)
    )
    return (*diff_profiles(before.profile, after.profile), *planned)


def _revisions(site: Site, fleet: str) -> tuple[Revision, ...]:
    records = site.store.records(Collection.ROLLOUTS, fleet=fleet, limit=_REVISIONS_MAX)
    return tuple(sorted((record.value_as(Revision) for record in records), key=lambda revision: revision.number))


def _before(site: Site, desired: Desired) -> int:
    """Return the newest revision that was complete and is otherwise than what is in force. Raises NotFoundError."""
    found, newest = _revisions(site, desired.fleet), _last_complete(site, desired)
    # What the controller put in force took the place of one that had failed.
    failed = {revision.failed for revision in found}
    earlier = [
        revision.number
        for revision in found
        if revision.number <= newest
        and revision.number not in failed
        and (revision.profile, revision.plan) != (desired.profile, desired.plan)
    ]
    if not earlier:
        raise NotFoundError(
            f"fleet {desired.fleet} has no earlier revision that was complete",
            hint="see: fleetctl rollout history; to any of them: fleetctl rollout undo --to REVISION",
        )
    return earlier[-1]


def _last_complete(site: Site, desired: Desired) -> int:
    """Return the last revision that was complete before the one in force, as far as is known."""
    rollout = status(site, desired.fleet).rollout
    before = desired.revision - 1
    if rollout is None:
        return before
    if rollout.revision < desired.revision and rollout.ended_at is not None:
        return rollout.revision
    return before if rollout.stable is None else rollout.stable


def _revision(site: Site, desired: Desired, number: int) -> Revision:
    found = site.store.find_record(Collection.ROLLOUTS, revision_key(number), fleet=desired.fleet)
    if found is None:
        known = ", ".join(str(revision.number) for revision in _revisions(site, desired.fleet))
        raise NotFoundError(f"fleet {desired.fleet} has no revision {number}", hint=f"it has: {known}")
    return found.value_as(Revision)

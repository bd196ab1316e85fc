"""Brings fleets up and down. Both are idempotent, and safe beside another that does the same."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from fleetctl import os_signals
from fleetctl.core.conditions import ConditionType, fleet_condition
from fleetctl.errors import (
    MAKE_ROOM,
    AmbiguousOutcomeError,
    DamagedStateError,
    DiskFullError,
    NotFoundError,
    UnavailableError,
)
from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.model.observation import StoreFault
from fleetctl.model.subject import FLEET
from fleetctl.operations.approval import check_plan
from fleetctl.operations.audit import audited
from fleetctl.operations.commands import ensure_controller, exclusive, holds_nodes, journal_command
from fleetctl.operations.fleet_hosts import FleetHosts, note_host
from fleetctl.operations.fleets import status
from fleetctl.operations.freezing import refuse_frozen
from fleetctl.operations.lookup import known_fleet
from fleetctl.operations.orphaned_processes import refuse_orphaned_processes
from fleetctl.operations.preflight import planned_nodes, preflight, refuse_failures
from fleetctl.operations.readiness import (
    failed_starts,
    keeps_failing,
    missing,
    refuse_failed_rollout,
    refuse_failing,
    refuse_final,
    refuse_superseded,
    waiting_starts,
)
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.variables import fleet_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from fleetctl.core.conditions import Condition
    from fleetctl.model.plan import Plan
    from fleetctl.model.preflight import Finding
    from fleetctl.model.profile import Profile
    from fleetctl.model.status import FleetStatus
    from fleetctl.operations.site import Site
    from fleetctl.ports.host import FleetProcesses

_POLL_S = 0.25
_EXIT_S = 5.0
_RECORDED_S = 10.0  # so long the end of the last replica may wait to be written down on a full disk


class Change(StrEnum):
    """How an `up` changed the fleet's record."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    RETRIED = "retried"  # nothing differs, and what could not start is tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class UpResult:
    """The result of an `up`; replicas are still booting."""

    desired: Desired
    change: Change


def up(  # noqa: PLR0913  # what it guards against, each named
    site: Site,
    profile: Profile,
    plan: Plan,
    *,
    is_exact: bool = False,
    max_cost_usd_per_hour: float | None = None,
    findings: tuple[Finding, ...] | None = None,
    override_freeze: bool = False,
    timeout_s: float | None = None,
    refreshes_images: bool = False,
) -> UpResult:
    """Make the fleet of `profile` what `plan` says, and make sure a controller is at work on it.

    `is_exact` guards a saved plan: it must have been made for this very profile. `findings` are those of a preflight
    just made; left out, the provider is asked here. A controller that has yet to be placed is waited for `timeout_s` at most.
    `refreshes_images` has the image of the fleet's next head looked up anew; the lanes' are in `plan`. Raises ConfigError, BudgetExceededError, LockHeldError,
    UnavailableError, NotFoundError (no such provider), ProviderError (its preflight finds that it would fail),
    FrozenError (it would change a frozen fleet).
    """
    with audited(site, "up", fleet=profile.name) as attempt:
        result = _up(
            site, profile, plan, is_exact, max_cost_usd_per_hour, findings, override_freeze, timeout_s, refreshes_images
        )
        attempt.note(f"fleet: {result.change} as generation {result.desired.generation}")
    site.host.wake(profile.name)
    return result


def _up(  # noqa: PLR0913, PLR0917  # as given to `up`
    site: Site,
    profile: Profile,
    plan: Plan,
    is_exact: bool,
    max_cost_usd_per_hour: float | None,
    findings: tuple[Finding, ...] | None,
    override_freeze: bool,
    timeout_s: float | None,
    refreshes_images: bool,
) -> UpResult:
    check_plan(site, profile, plan, is_exact=is_exact, max_cost_usd_per_hour=max_cost_usd_per_hour)
    # Before the lock too, which leaves a directory: of a fleet that is refused for its port nothing is left.
    _refuse_machine(site, profile, plan, findings)
    # Held: a fleet that is on record as up has a controller, whenever Ctrl-C comes.
    with exclusive(site, profile.name), os_signals.held():
        _check_port(site, profile)
        result = _record(site, profile, plan, override_freeze=override_freeze)
        _keep_environment(site, result)
        if isinstance(site.host, FleetHosts):
            site.host.keep_certificate(profile)
            if refreshes_images:
                site.host.refresh_image(profile.name)  # before a head that is placed now
        ensure_controller(site, profile.name, within_s=timeout_s)
    return result


def rehearse_up(site: Site, profile: Profile, plan: Plan, *, override_freeze: bool = False) -> None:
    """Raise what `up` would refuse by the fleet and the machine as they are now; nothing is changed."""
    check_plan(site, profile, plan)
    _refuse_machine(site, profile, plan, None)
    before = site.store.fleet(profile.name)
    if before is not None and not _is_same(before, profile, plan):
        _refuse_frozen_change(before, override=override_freeze)


def _refuse_machine(site: Site, profile: Profile, plan: Plan, findings: tuple[Finding, ...] | None) -> None:
    """Raise where the provider or this machine would not run it."""
    found = os_signals.run(preflight(site, profile, plan)) if findings is None else findings
    refuse_failures(profile, planned_nodes(site, profile, plan), found)
    refuse_orphaned_processes(site, profile.name)
    _check_port(site, profile)


def _refuse_frozen_change(before: Desired, *, override: bool) -> None:
    if before.phase is DesiredPhase.UP:
        lanes = tuple(spec.name for spec in before.profile.lanes)
        refuse_frozen(before, lanes, "changing it is held back", override=override)


def _check_port(site: Site, profile: Profile) -> None:
    """Raise UnavailableError where the fleet's port is another's: one whose controller or gateway lives holds it itself."""
    if profile.host_choice.is_local and not site.host.processes(profile.name).is_any:
        site.host.check_port(profile.gateway.host, profile.gateway.port)


def down(site: Site, fleet: str, *, override_freeze: bool = False, timeout_s: float | None = None) -> Desired:
    """Have a fleet taken down; a dead controller is started to do it, which may take `timeout_s`. Follow it with `follow_down`.

    Raises FrozenError.
    """
    with audited(site, "down", fleet=fleet) as attempt, exclusive(site, fleet), os_signals.held():
        before = known_fleet(site, fleet)
        lanes = tuple(spec.name for spec in before.profile.lanes)
        is_going_down = before.phase is DesiredPhase.DOWN
        refuse_frozen(before, lanes, "taking it down is held back", override=override_freeze or is_going_down)
        desired = site.store.set_phase(fleet, DesiredPhase.DOWN, now=site.clock.now())
        if not is_going_down:
            attempt.note("fleet: up -> down")
            journal_command(site, fleet, subject=FLEET, action="down", reason="asked for by `down`")
        if not is_over(site, fleet):
            ensure_controller(site, fleet, within_s=timeout_s)
    site.host.wake(fleet)
    return desired


def follow_up(
    site: Site,
    fleet: str,
    *,
    timeout_s: float,
    since_s: float | None = None,
    generation: int,
    revision: int | None = None,
) -> Iterator[FleetStatus]:
    """Yield statuses until this generation of the fleet's record is in force, its rollout complete, and ready.

    Raises RolloutFailedError as soon as its revision has failed, or somebody put another in its place; UnavailableError after `timeout_s` (from `since_s`), or where the controller decides nothing, and EngineStartError as soon as it
    is certain that an engine cannot start by it; nothing is undone then.
    """
    deadline_s = (site.clock.monotonic_s() if since_s is None else since_s) + timeout_s
    while True:
        seen = status(site, fleet)
        yield seen
        condition = fleet_condition(seen)
        lacking = missing(site, seen, generation=generation, revision=revision)
        if revision is not None:
            refuse_failed_rollout(seen, revision=revision)
            refuse_superseded(site, seen, revision=revision)
        if not lacking:
            return
        if seen.rollout is None or seen.rollout.ended_at is not None:
            refuse_final(seen, generation=generation)
            refuse_failing(seen)
        if site.clock.monotonic_s() >= deadline_s:
            why = (*failed_starts(seen, generation=generation), *waiting_starts(seen, generation=generation))
            failures = "".join(f"\n{line}" for line in why)
            raise UnavailableError(
                f"fleet {fleet} is not ready after {timeout_s:g} s: {_why_not(lacking, condition, seen.reason)}{failures}",
                hint=f"it goes on coming up; see why: fleetctl why -f {fleet}",
            )
        if condition.type is ConditionType.STALE:
            ensure_controller(site, fleet, within_s=max(0.0, deadline_s - site.clock.monotonic_s()))
        site.clock.sleep_blocking(_POLL_S)


def follow_down(site: Site, fleet: str, *, timeout_s: float) -> Iterator[FleetStatus]:
    """Yield statuses until nothing is left, then forget the fleet.

    Raises UnavailableError after `timeout_s`; AmbiguousOutcomeError, the fleet forgotten, if something may be left;
    DiskFullError where every replica has ended and there is no room to write that down.
    """
    deadline_s = site.clock.monotonic_s() + timeout_s
    recorded_by_s = deadline_s
    desired = site.store.fleet(fleet)
    since = site.clock.now() if desired is None else desired.changed_at
    lived: set[FleetProcesses] = set()
    while True:
        processes = site.host.processes(fleet)
        lived.add(processes)
        # The controller forgets the fleet as its own last act.
        if site.store.fleet(fleet) is None or is_over(site, fleet):
            _forget(site, fleet, lived)
            _warn_of_remains(site, fleet, since)
            return
        if not processes.has_controller:
            ensure_controller(site, fleet, within_s=max(0.0, deadline_s - site.clock.monotonic_s()))
        try:
            seen = status(site, fleet)
        except NotFoundError:
            continue  # forgotten just now
        yield seen
        _refuse_damaged(seen)
        if any(r.record.state.is_live for r in seen.replicas) or not _is_disk_full(seen):
            recorded_by_s = site.clock.monotonic_s() + _RECORDED_S
        elif site.clock.monotonic_s() >= recorded_by_s:
            raise DiskFullError(fleet_condition(seen).message, hint=MAKE_ROOM)
        if site.clock.monotonic_s() >= deadline_s:
            raise UnavailableError(
                f"fleet {fleet} is not down after {timeout_s:g} s: {fleet_condition(seen).message}",
                hint=f"it goes on; run `fleetctl down {fleet}` again, or see why: fleetctl why -f {fleet}",
            )
        site.clock.sleep_blocking(_POLL_S)


def _refuse_damaged(seen: FleetStatus) -> None:
    """Raise DamagedStateError where the controller cannot go on by its state, and never will."""
    found = seen.store_condition
    if found is not None and found.fault is StoreFault.DAMAGED:
        raise DamagedStateError(found.message, hint="restore a copy, or set it aside and bring the fleet up anew")


def _is_disk_full(seen: FleetStatus) -> bool:
    return seen.store_condition is not None and seen.store_condition.fault is StoreFault.DISK_FULL


def _why_not(lacking: str, condition: Condition, reason: str) -> str:
    """Return what is missing, what is the case with the fleet where that is not READY, and the controller's own reason."""
    if condition.type is ConditionType.READY or not condition.message:
        return lacking
    why = f"; {reason}" if reason and reason not in condition.message else ""
    return f"{condition.message} ({lacking}){why}"


def is_over(site: Site, fleet: str) -> bool:
    """Say whether a fleet that should be down is: no node, no open intent, no process."""
    return not site.host.processes(fleet).is_any and not holds_nodes(site, fleet)


def _forget(site: Site, fleet: str, lived: set[FleetProcesses]) -> None:
    """Wait for processes that are about to exit, so that "nothing is left" is true, then forget the fleet."""
    for processes in lived:
        site.host.await_exit(processes, within_s=_EXIT_S)
    with exclusive(site, fleet):
        desired = site.store.fleet(fleet)
        if desired is not None and desired.phase is DesiredPhase.UP:
            return  # somebody brought it up again meanwhile
        site.store.remove_fleet(fleet)
        site.host.clean_up(fleet)


def _warn_of_remains(site: Site, fleet: str, since: datetime) -> None:
    """Raise AmbiguousOutcomeError if, by a tombstone left since, something of the fleet may still be there."""
    left = [s.reason for s in site.store.tombstones(fleet) if s.may_be_there and s.ended_at >= since]
    if left:
        raise AmbiguousOutcomeError(
            f"fleet {fleet} is down as far as is known: {'; '.join(left)}",
            hint="look for what may be left, and remove it: fleetctl gc",
        )


def _record(site: Site, profile: Profile, plan: Plan, *, override_freeze: bool) -> UpResult:
    before = site.store.fleet(profile.name)
    is_same = before is not None and _is_same(before, profile, plan)
    if before is not None and is_same and not _must_retry(status(site, profile.name)):
        return UpResult(desired=before, change=Change.UNCHANGED)
    if before is not None:
        _refuse_frozen_change(before, override=override_freeze)
    _note_provider(site, profile)
    note_host(site.store, profile, site.clock)
    desired = site.store.put_fleet(profile, plan, now=site.clock.now(), by=site.actor.name)
    if before is None or before.phase is not DesiredPhase.UP:
        change = Change.CREATED
    else:
        change = Change.RETRIED if is_same else Change.UPDATED
    reason = f"{change} as generation {desired.generation} by `up`"
    journal_command(site, profile.name, subject=FLEET, action="up", reason=reason)
    return UpResult(desired=desired, change=change)


def _note_provider(site: Site, profile: Profile) -> None:
    """Remember beyond the fleet where its nodes are, so that `gc` looks there too."""
    choice = profile.provider_choice
    if choice.settings:
        record = StoredRecord.of(
            Collection.PROVIDERS, str(choice), choice, at=site.clock.now(), fleet=profile.name
        )  # fmt: skip
        site.store.put_record(record)


def _must_retry(seen: FleetStatus) -> bool:
    """Whether starts are given up, or put off ever longer: then the same profile is a new generation, which begins anew."""
    return any(lane.cannot_start or keeps_failing(seen, lane) for lane in seen.lanes)


def _keep_environment(site: Site, result: UpResult) -> None:
    """Keep what the fleet's processes need of this shell, so that whoever restarts one later starts the same."""
    desired = result.desired
    before = None if result.change is Change.CREATED else site.host.environment(desired.fleet)
    provider = site.provider_of(desired.profile)
    kept = fleet_environment(
        desired.profile, desired.plan, provider=provider, engine_of=site.engines, environ=os.environ, before=before
    )
    if kept != before:
        site.host.keep_environment(desired.fleet, kept)


def _is_same(before: Desired, profile: Profile, plan: Plan) -> bool:
    return before == replace(
        before, phase=DesiredPhase.UP, profile=profile, plan=plan, overrides=before.overrides.outlasting
    )

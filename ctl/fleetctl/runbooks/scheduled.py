"""A start by the clock: it stands for a scheduled instant, does nothing twice, and finishes what was cut."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError, FleetctlError, LockHeldError, StateError
from fleetctl.model.runbook import MissedRun
from fleetctl.model.runbook_run import RunbookRun, RunStatus
from fleetctl.runbooks.notices import tell_receivers
from fleetctl.runbooks.period import stands_for
from fleetctl.runbooks.run_log import new_run_id, put_run, run_of_period
from fleetctl.runbooks.runner import RunResult, draft_run, run_runbook
from fleetctl.schedules.due import Due, Timeliness, due
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.operations.site import Site
    from fleetctl.runbooks.context import Company
    from fleetctl.runbooks.runner import RunRequest


def run_scheduled(site: Site, request: RunRequest, company: Company, *, since: datetime | None) -> RunResult | None:
    """Make the run of the latest scheduled instant if it is due, or finish the one that was cut; None: nothing to do.

    What has ended stays ended, however it did: the clock asks every few minutes, and tries nothing again. A run that
    cannot begin is put on record as failed, and told, once. `since` is when the schedule was installed.
    Raises LockHeldError, StateError, and ConfigError for a runbook without a schedule.
    """
    start = _start(site, request, since)
    request = replace(request, at=start.scheduled_at, is_scheduled=True)
    try:
        draft = draft_run(site, request)
    except FleetctlError as error:
        return _not_begun(site, request, error, company) if start.is_due else None
    earlier = run_of_period(site.store, draft.fleet, draft.runbook.name, draft.parameters, draft.stands_for)
    if earlier is not None:
        result = _finished(site, request, earlier, company)
    elif start.is_due:
        result = run_runbook(site, request, company)
    else:
        _keep_skipped(site, draft, start)
        return None
    return None if result is None or result.is_earlier else result


def _keep_skipped(site: Site, draft: RunbookRun, start: Due) -> None:
    """Put a run on record that was missed and is not made up for: `runbook history` has it, and nobody is told."""
    if start.timeliness is not Timeliness.TOO_LATE:
        return  # before it was installed nothing was missed
    runbook, now = draft.runbook, site.clock.now()
    within = format_duration(runbook.missed_within_s)
    rule = f"made up for within {within}" if runbook.missed is MissedRun.RUN_ONCE else "skipped"
    put_run(
        site.store,
        replace(
            draft,
            id=new_run_id(site.store, runbook.name, now=now),
            status=RunStatus.SKIPPED,
            ended_at=now,
            reason=f"missed by {format_duration(start.late_s)}: missed runs are {rule}",
        ),
    )


def _start(site: Site, request: RunRequest, since: datetime | None) -> Due:
    """Return which instant a start now stands for, and whether it is due. Raises ConfigError."""
    runbook = request.found.runbook
    if not runbook.schedule:
        raise ConfigError(f"runbook {runbook.name} has no schedule", hint="leave --scheduled out, or add `schedule:`")
    return due(
        runbook.schedule,
        site.clock.now(),
        time_zone=runbook.time_zone,
        catch_up_within_s=runbook.missed_within_s if runbook.missed is MissedRun.RUN_ONCE else None,
        since=since,
    )


def _finished(site: Site, request: RunRequest, earlier: RunbookRun, company: Company) -> RunResult | None:
    """Go on with a run that was cut, close one whose approval has expired; None: it is over, waits, or is being made."""
    has_expired = earlier.expires_at is not None and earlier.expires_at <= site.clock.now()
    if earlier.status is not RunStatus.RUNNING and not (earlier.status is RunStatus.WAITING and has_expired):
        return None
    try:
        return run_runbook(site, replace(request, wait_s=0.0), company)
    except LockHeldError:
        return None  # its own process, or another runbook's, is at work; the next start looks again


def _not_begun(site: Site, request: RunRequest, error: FleetctlError, company: Company) -> RunResult | None:
    """Put a run that cannot begin on record, and tell its receivers, unless an earlier start of the instant has."""
    if isinstance(error, StateError):
        raise error
    runbook, now = request.found.runbook, site.clock.now()
    fleet, parameters = request.fleet or runbook.fleet, dict(request.parameters)
    period = stands_for(runbook, request.at or now)
    if run_of_period(site.store, fleet, runbook.name, parameters, period) is not None:
        return None
    run = RunbookRun(
        id=new_run_id(site.store, runbook.name, now=now),
        runbook=runbook,
        fleet=fleet,
        parameters=parameters,
        stands_for=period,
        actor=site.actor,
        status=RunStatus.FAILED,
        created_at=now,
        ended_at=now,
        reason=error.message,
        exit_code=error.exit_code,
        source=request.found.file,
    )
    put_run(site.store, run)
    deliveries = tell_receivers(site, run, environ=company.environ)
    return RunResult(run=put_run(site.store, replace(run, deliveries=deliveries)))

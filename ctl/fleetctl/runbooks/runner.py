"""A run's life: begun or resumed under the fleet's lock, its steps taken, rolled back where one fails, ended, told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from fleetctl.errors import (
    MAKE_ROOM,
    ApprovalPendingError,
    ConfigError,
    DiskFullError,
    FleetctlError,
)
from fleetctl.model.audit import AuditResult
from fleetctl.model.runbook_run import RunbookRun, RunStatus, StepRecord, StepStatus
from fleetctl.operations.audit import audit_result, audited
from fleetctl.operations.lookup import chosen_fleet, known_fleet
from fleetctl.runbooks.known_runbooks import FoundRunbook, typed_name
from fleetctl.runbooks.notices import tell_receivers
from fleetctl.runbooks.parameters import given_parameters
from fleetctl.runbooks.period import stands_for
from fleetctl.runbooks.run_log import cut_runs, find_run, new_run_id, put_run, run_of_period
from fleetctl.runbooks.step_table import STEPS
from fleetctl.runbooks.taking import StepTaker

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from fleetctl.model.runbook import Runbook
    from fleetctl.operations.site import Site
    from fleetctl.runbooks.context import Company

_LOCK = "runbook"  # one run at a time on a fleet, whichever runbook it is of


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What somebody asked for: a runbook on a fleet."""

    found: FoundRunbook
    fleet: str = ""  # empty: the runbook's own, or the only one there is
    parameters: Mapping[str, str] = field(default_factory=dict)  # as typed
    at: datetime | None = None  # the instant it stands for; None: now
    max_cost_usd_per_hour: float | None = None
    timeout_s: float | None = None
    wait_s: float = 0.0  # how long another run on the fleet is waited for
    is_scheduled: bool = False  # by the clock, which tries nothing again that has ended
    is_forced: bool = False  # run again though the period's run is over


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run stands now."""

    run: RunbookRun
    is_earlier: bool = False  # nothing was done: an earlier run stands for the same period


def run_runbook(site: Site, request: RunRequest, company: Company) -> RunResult:
    """Run a runbook, or finish the run of the same period that was cut or waits; nothing where one has succeeded.

    Raises LockHeldError naming who runs another on the fleet, ConfigError, NotFoundError, DiskFullError. A step that
    fails is in the result.
    """
    draft = draft_run(site, request)
    _refuse_full_disk(site)
    with _lock(site, draft.fleet, company, wait_s=request.wait_s):
        # Somebody may have run it while we waited for the lock.
        earlier = run_of_period(site.store, draft.fleet, draft.runbook.name, draft.parameters, draft.stands_for)
        if earlier is not None and not request.is_forced:
            if _stands(earlier, request):
                return RunResult(run=earlier, is_earlier=True)
            if not earlier.status.is_over:
                return RunResult(run=_went_on(site, earlier, company))
        now = site.clock.now()
        _abandon_cut_runs(site, draft, now=now)
        run = replace(draft, id=new_run_id(site.store, draft.runbook.name, now=now), created_at=now)
        return RunResult(run=_gone_through(site, put_run(site.store, run), company))


def _stands(earlier: RunbookRun, request: RunRequest) -> bool:
    """Whether nothing more is to be done for its period; a start on time may have waited while a later one skipped it."""
    if earlier.status is RunStatus.SUCCEEDED:
        return True
    return request.is_scheduled and earlier.status.is_over and earlier.status is not RunStatus.SKIPPED


def draft_run(site: Site, request: RunRequest) -> RunbookRun:
    """Return the run that a request would begin; nothing is written. Raises ConfigError, NotFoundError."""
    now, runbook = site.clock.now(), request.found.runbook
    return RunbookRun(
        id=runbook.name,
        runbook=runbook if request.timeout_s is None else replace(runbook, timeout_s=request.timeout_s),
        fleet=_fleet_of(site, runbook, request.fleet),
        parameters=given_parameters(runbook, request.parameters),
        stands_for=stands_for(runbook, request.at or now),
        actor=site.actor,
        status=RunStatus.RUNNING,
        created_at=now,
        source=request.found.file,
        max_cost_usd_per_hour=request.max_cost_usd_per_hour,
    )


def resume_run(
    site: Site, run_id: str, company: Company, *, fleet: str = "", wait_s: float = 0.0, is_answered: bool = False
) -> RunResult:
    """Go on with a run that was cut, or waits for an approval; `is_answered`: a yes or a no comes with it.

    Raises NotFoundError, LockHeldError, and ConfigError for a run that is over: one that succeeded only where an answer
    is given, which nothing waits for.
    """
    _refuse_full_disk(site)
    known = find_run(site.store, run_id, fleet=fleet)
    with _lock(site, known.fleet, company, wait_s=wait_s):
        run = find_run(site.store, run_id, fleet=known.fleet)
        if run.status is RunStatus.SUCCEEDED and is_answered:
            ended_at = f" at {run.ended_at:%Y-%m-%d %H:%M:%S} UTC" if run.ended_at is not None else ""
            raise ConfigError(
                f"{run.id} waits for no approval: it succeeded{ended_at}",
                hint=f"what it did: fleetctl runbook history --run {run.id}",
            )
        if run.status is RunStatus.SUCCEEDED:
            return RunResult(run=run, is_earlier=True)
        if run.status in (RunStatus.FAILED, RunStatus.SKIPPED):
            verb = "has failed" if run.status is RunStatus.FAILED else "was skipped"
            raise ConfigError(
                f"{run.id} {verb}: {run.reason}",
                hint=f"run it again: fleetctl runbook run {typed_name(run.runbook, run.source)}",
            )
        return RunResult(run=_went_on(site, run, company))


def _lock(site: Site, fleet: str, company: Company, *, wait_s: float) -> AbstractContextManager[None]:
    return site.host.exclusive(fleet, operation=_LOCK, wait_s=wait_s, on_wait=company.tell)


def _fleet_of(site: Site, runbook: Runbook, named: str) -> str:
    """Return the fleet a run is on; one that is not there yet must be brought up by the first step."""
    wanted = named or runbook.fleet
    if wanted and runbook.steps[0].action == "up":
        return wanted
    return known_fleet(site, wanted).fleet if wanted else chosen_fleet(site)


def _refuse_full_disk(site: Site) -> None:
    if not site.store.has_disk_space():
        raise DiskFullError(f"no room for the run's record in {site.store.location}; nothing was done", hint=MAKE_ROOM)


def _abandon_cut_runs(site: Site, begun: RunbookRun, *, now: datetime) -> None:
    """Close this runbook's runs that were cut: the next one decides by what is the case now. Another's is its own to finish."""
    for run in cut_runs(site.store, begun.fleet):
        if run.runbook.name != begun.runbook.name:
            continue
        reason = "its process was gone in the middle, and another run has begun since"
        put_run(site.store, replace(run, status=RunStatus.ABANDONED, ended_at=now, reason=reason))


def _went_on(site: Site, run: RunbookRun, company: Company) -> RunbookRun:
    company.tell(f"going on with {run.id}, begun at {run.created_at:%Y-%m-%d %H:%M:%S} UTC")
    resumed = replace(run, status=RunStatus.RUNNING, lives=run.lives + 1, expires_at=None)
    return _gone_through(site, put_run(site.store, resumed), company)


def _gone_through(site: Site, run: RunbookRun, company: Company) -> RunbookRun:
    """Take every step that is not over; return the run as it ended, or waits."""
    # Its entry is written at once; the operations of its steps are added as they are done, and survive a kill.
    with audited(site, "runbook", fleet=run.fleet, parameters=run.parameters) as attempt:
        attempt.note(f"runbook {run.runbook.name}, run {run.id}")
    noted = len(attempt.changes)
    attempt.result = (
        AuditResult.FAILED
    )  # unless it comes to its end: a state that cannot be written, or Ctrl-C, ends it too
    company.on_record(run)
    taker = StepTaker(site, company, run, deadline_s=site.clock.monotonic_s() + _left_s(run))
    try:
        failed = _failed_record(taker) or _take_steps(taker)
        for taken in run.runbook.on_failure if failed is not None else ():
            taker.take(taken, is_rollback=True)
    except ApprovalPendingError as error:
        waiting = replace(
            taker.run, status=RunStatus.WAITING, reason=error.message, exit_code=error.exit_code,
            expires_at=error.expires_at,
        )  # fmt: skip
        attempt.result = None
        return _recorded(site, waiting, company)
    ended = _ended(taker.run, failed, now=site.clock.now())
    was_changed = len(attempt.changes) > noted or _has_changed(ended)
    attempt.result = audit_result(ended.exit_code, was_changed=was_changed) if failed is not None else None
    return _recorded(site, ended, company)


def _take_steps(taker: StepTaker) -> StepRecord | None:
    """Take the steps in order; return the record of the one that failed for good."""
    for taken in taker.run.runbook.steps:
        record = taker.take(taken)
        if record.status is StepStatus.FAILED and not taken.continue_on_error:
            return record
    return None


def _failed_record(taker: StepTaker) -> StepRecord | None:
    """Return the record of the step that failed before the run was cut in its rollback."""
    failed = taker.run.failed_step
    return taker.run.step(failed.name) if failed is not None else None


def _ended(run: RunbookRun, failed: StepRecord | None, *, now: datetime) -> RunbookRun:
    if failed is None:
        return replace(run, status=RunStatus.SUCCEEDED, ended_at=now, reason="", exit_code=0)
    undone = [record for record in run.steps if record.is_rollback and record.status is StepStatus.FAILED]
    rest = "".join(f"; its rollback failed too, at {record.name}: {record.reason}" for record in undone)
    return replace(
        run, status=RunStatus.FAILED, ended_at=now, reason=f"{failed.name}: {failed.reason}{rest}",
        exit_code=failed.exit_code or FleetctlError.exit_code,
    )  # fmt: skip


def _has_changed(run: RunbookRun) -> bool:
    """Whether a step of it, in an earlier life too, did what changes a fleet."""
    return any(record.status is StepStatus.OK and STEPS[record.action].is_change for record in run.steps)


def _recorded(site: Site, run: RunbookRun, company: Company) -> RunbookRun:
    """Put the run on record as it stands, then tell its receivers: what is sent twice would wake somebody twice."""
    run = put_run(site.store, run)
    if not run.runbook.notify:
        return run
    deliveries = tell_receivers(site, run, environ=company.environ)
    return put_run(site.store, replace(run, deliveries=(*run.deliveries, *deliveries)))


def _left_s(run: RunbookRun) -> float:
    """Return what a run has left of its timeout: the steps of its earlier lives have taken theirs."""
    used_s = sum(record.duration_s for record in run.steps if STEPS[record.action].is_counted)
    return max(0.0, run.runbook.timeout_s - used_s)

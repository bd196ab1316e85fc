"""Runbooks, their runs and what they would do, as tables and as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.cli.output import View, lines, section
from fleetctl.codec import from_plain
from fleetctl.model.notification import Delivery
from fleetctl.model.runbook import MissedRun
from fleetctl.model.runbook_run import RunStatus, StepStatus
from fleetctl.runbooks.answers import ListedRunbook, RunAnswer, ShownRunbook, StepAnswer
from fleetctl.schedules.cron import next_run
from fleetctl.schedules.time_zones import zone_label
from fleetctl.units import format_count, format_duration, format_usd
from fleetctl.views.figures import format_clock_time
from fleetctl.views.table import Cell, Tone, cell, text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from fleetctl.model.runbook import Runbook, RunbookStep
    from fleetctl.model.runbook_run import RunbookRun, StepRecord
    from fleetctl.runbooks.dry_run import PlannedStep, RunbookPlan
    from fleetctl.runbooks.known_runbooks import FoundRunbook, LibraryEntry

_RUN_TONES = {
    RunStatus.SUCCEEDED: Tone.GOOD, RunStatus.FAILED: Tone.BAD, RunStatus.WAITING: Tone.WARN, RunStatus.SKIPPED: Tone.DIM,
}  # fmt: skip
_STEP_TONES = {
    StepStatus.OK: Tone.GOOD,
    StepStatus.FAILED: Tone.BAD,
    StepStatus.WAITING: Tone.WARN,
    StepStatus.UNCERTAIN: Tone.WARN,
    StepStatus.SKIPPED: Tone.DIM,
}


def step_view(run: RunbookRun, record: StepRecord) -> View:
    """Return a step that is over as one line."""
    text = f"{record.name}: {record.status}" + (
        f" after {format_duration(record.duration_s)}" if record.ended_at else ""
    )
    result = ", ".join(
        f"{key} {_brief(value)}" for key, value in record.result.items() if not isinstance(value, (dict, list))
    )
    why = record.reason or result
    value = StepAnswer(run=run.id, runbook=run.runbook.name, fleet=run.fleet, step=record, duration_s=record.duration_s)
    return View(value=value, names=(record.name,), sections=(lines(text + (f" ({why})" if why else "")),))


def run_view(run: RunbookRun) -> View:
    """Return a run with its steps."""
    head = [
        f"Run       {run.id} on {run.fleet or 'no fleet'}: {run.status}" + (f", {run.reason}" if run.reason else ""),
        f"Stands for {run.stands_for:%Y-%m-%d %H:%M} UTC, begun {run.created_at:%Y-%m-%d %H:%M:%S} UTC by {_who(run)}",
    ]
    if run.parameters:
        head.append(f"With      {_pairs(run.parameters)}")
    head += [f"Told      {_delivery(each)}" for each in run.deliveries]
    rows = [
        (
            each.name, each.action, cell(each.status.value, _STEP_TONES.get(each.status, Tone.PLAIN)),
            format_duration(each.duration_s) if each.ended_at else "", str(each.attempts or ""),
            each.reason or _result(each),
        )
        for each in run.steps
    ]  # fmt: skip
    table = text_table("STEP ACTION STATUS >TOOK >TRIES RESULT", rows)
    return View(value=RunAnswer.of(run), names=(run.id,), sections=(lines(*head), section(table)))


def _result(record: StepRecord) -> str:
    """Return what a step led to; of notifications, what became of each."""
    deliveries = record.result.get("deliveries")
    if not isinstance(deliveries, list):
        return _pairs(record.result)
    return "; ".join(_delivery(from_plain(Delivery, each)) for each in deliveries) or "nobody is to be told"


def _delivery(delivery: Delivery) -> str:
    """Return what became of telling one receiver: "slack env:HOOK: delivered", or why it was not."""
    tries = f" after {format_count(delivery.attempts, 'attempt')}" if delivery.attempts > 1 else ""
    if delivery.is_delivered:
        return f"{delivery.receiver}: delivered{tries}"
    verb = "may have arrived" if delivery.is_uncertain else "not delivered"
    return f"{delivery.receiver}: {verb}{tries}" + (f", {delivery.fault}" if delivery.fault else "")


def history_view(runs: Sequence[RunbookRun], *, now: datetime) -> View:
    """Return runs, a row each, oldest first."""
    rows: list[tuple[str | Cell, ...]] = [
        (
            run.id, run.fleet, cell(run.status.value, _RUN_TONES.get(run.status, Tone.PLAIN)),
            format_clock_time(run.created_at, now), _took(run), _exit_code(run), _steps_taken(run), _who(run), _why(run),
        )
        for run in runs
    ]  # fmt: skip
    table = text_table("RUN FLEET STATUS BEGUN >TOOK >EXIT STEPS BY REASON", rows)
    shown = section(table) if runs else lines("no runs yet; run one: fleetctl runbook run NAME")
    return View(value=[RunAnswer.of(run) for run in runs], names=tuple(run.id for run in runs), sections=(shown,))


def _why(run: RunbookRun) -> str:
    """Return why a run is where it is. Of one that is under way the record cannot tell whether its process still is."""
    if run.status is RunStatus.RUNNING:
        return f"under way; if its process is gone: fleetctl runbook resume {run.id}"
    return run.reason


def list_view(entries: Sequence[LibraryEntry], *, now: datetime) -> View:
    """Return the runbooks there are, a row each."""
    rows = [(e.name, _schedule(e.runbook, now) if e.runbook else "", e.fault or e.description) for e in entries]
    empty = lines("no runbooks; write one into ~/.config/fleetctl/profiles/runbooks")
    return View(
        value=[_listed(e, now) for e in entries],
        names=tuple(e.name for e in entries),
        sections=(section(text_table("RUNBOOK NEXT_RUN DESCRIPTION", rows)) if entries else empty,),
    )


def _listed(entry: LibraryEntry, now: datetime) -> ListedRunbook:
    return ListedRunbook(
        name=entry.name,
        file=entry.file,
        description=entry.description,
        fault=entry.fault,
        next_run=_next_run(entry.runbook, now) if entry.runbook else None,
    )


def show_view(found: FoundRunbook, *, now: datetime) -> View:
    """Return what a runbook does."""
    runbook = found.runbook
    sections = [lines(*_head(found, now))]
    if runbook.parameters:
        rows = [
            (p.name, p.type.value, "required" if p.required else str(p.default), ", ".join(map(str, p.choices)), p.description)
            for p in runbook.parameters
        ]  # fmt: skip
        sections.append(section(text_table("PARAMETER TYPE DEFAULT CHOICES DESCRIPTION", rows)))
    sections.append(section(text_table("STEP ACTION ARGUMENTS IF", [_step_row(s) for s in runbook.steps])))
    if runbook.on_failure:
        rollback = text_table("STEP ACTION ARGUMENTS IF", [_step_row(s) for s in runbook.on_failure])
        sections.append(section(rollback, title="On failure"))
    value = ShownRunbook(file=found.file, next_run=_next_run(runbook, now), runbook=runbook)
    return View(value=value, names=(runbook.name,), sections=tuple(sections))


def plan_view(plan: RunbookPlan) -> View:
    """Return what a run would do."""
    head = [
        f"Runbook  {plan.runbook} on {plan.fleet} (dry run, nothing was changed)",
        f"Cost     {format_usd(plan.cost_usd_per_hour)}/h now"
        + (f", cap {format_usd(plan.max_cost_usd_per_hour)}/h" if plan.max_cost_usd_per_hour is not None else ""),
    ]
    if plan.earlier_run:
        does = "nothing would be done" if plan.earlier_status is RunStatus.SUCCEEDED else "see runbook history"
        head.append(f"Earlier  {plan.earlier_run} ({plan.earlier_status}) stands for this period: {does}")
    rows = [row for each in plan.steps for row in _planned_rows(each)]
    table = text_table("STEP ACTION RUNS ARGUMENTS >$/H_AFTER FORECAST_P99_AFTER", rows)
    return View(value=plan, names=tuple(each.name for each in plan.steps), sections=(lines(*head), section(table)))


def _planned_rows(planned: PlannedStep) -> Iterator[tuple[str | Cell, ...]]:
    runs = "on failure" if planned.is_rollback else {True: "yes", False: "no", None: "unknown"}[planned.would_run]
    cost = "" if planned.cost_usd_per_hour is None else format_usd(planned.cost_usd_per_hour)
    shown = cell(f"{cost} OVER CAP", Tone.BAD) if planned.is_over_cap else cost
    forecasts = [
        f"{lane.lane} x{lane.replicas}: "
        + (
            f"ttft {format_duration(lane.ttft_p99_s)}, itl {format_duration(lane.itl_p99_s or 0.0)}"
            if lane.ttft_p99_s is not None
            else lane.reason
        )
        for lane in planned.lanes
    ]
    why = planned.reason or (forecasts[0] if forecasts else "")
    yield planned.name, planned.action, runs, _pairs(planned.arguments), shown, why
    for line in forecasts if planned.reason else forecasts[1:]:
        yield "", "", "", "", "", line


def _head(found: FoundRunbook, now: datetime) -> Iterator[str]:
    runbook = found.runbook
    yield f"Runbook   {runbook.name}" + (f": {runbook.description}" if runbook.description else "")
    yield f"File      {found.file}"
    if runbook.fleet:
        yield f"Fleet     {runbook.fleet}"
    if runbook.schedule:
        missed = runbook.missed.value
        if runbook.missed is MissedRun.RUN_ONCE:
            missed += f" within {format_duration(runbook.missed_within_s)}"
        yield f"Schedule  {runbook.schedule}, {zone_label(runbook.time_zone)}; missed runs: {missed}"
        yield f"Next run  {_schedule(runbook, now)}"
    cost = (
        f", at most {format_usd(runbook.max_cost_usd_per_hour)}/h" if runbook.max_cost_usd_per_hour is not None else ""
    )
    yield f"Limits    {format_duration(runbook.timeout_s)}{cost}; one run a period ({runbook.period})"
    for rule in runbook.notify:
        yield f"Notifies  {rule.label} on {', '.join(rule.on)}"


def _step_row(taken: RunbookStep) -> tuple[str, ...]:
    return taken.name, taken.action, _pairs(taken.arguments), taken.condition


def _next_run(runbook: Runbook, now: datetime) -> datetime | None:
    return next_run(runbook.schedule, now, time_zone=runbook.time_zone) if runbook.schedule else None


def _schedule(runbook: Runbook, now: datetime) -> str:
    at = _next_run(runbook, now)
    return f"{at:%Y-%m-%d %H:%M} UTC" if at else ""


def _took(run: RunbookRun) -> str:
    return format_duration((run.ended_at - run.created_at).total_seconds()) if run.ended_at else ""


def _exit_code(run: RunbookRun) -> str:
    return "-" if run.status is RunStatus.RUNNING else str(run.exit_code)


def _steps_taken(run: RunbookRun) -> str:
    done = sum(each.status in (StepStatus.OK, StepStatus.SKIPPED) and not each.is_rollback for each in run.steps)
    return f"{done}/{len(run.runbook.steps)}"


def _who(run: RunbookRun) -> str:
    return f"{run.actor.name} ({run.actor.channel})"


def _pairs(values: object) -> str:
    return ", ".join(f"{key}={_brief(value)}" for key, value in dict(values).items())  # type: ignore[call-overload]


def _brief(value: object) -> object:
    """Return a value for one line of a table: of a text on several lines, such as a report, the first."""
    first, more, _ = str(value).partition("\n")
    return f"{first} ..." if more else value

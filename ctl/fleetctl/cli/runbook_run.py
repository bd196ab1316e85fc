"""`fleetctl runbook run` and `resume`."""

import os
import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.options import DryRun, FleetLongOption, Output, Quiet
from fleetctl.cli.output import Format, emit, json_line, text_of, write
from fleetctl.cli.progress import Progress, confirm
from fleetctl.cli.runbook_interrupt import Interruptible
from fleetctl.cli.runbook_views import plan_view, run_view, step_view
from fleetctl.cli.site import site_of
from fleetctl.errors import ConfigError, FleetctlError
from fleetctl.model.runbook_run import RunbookRun, RunStatus, StepRecord
from fleetctl.runbooks.context import Company
from fleetctl.runbooks.dry_run import RunbookPlan, plan_run
from fleetctl.runbooks.known_runbooks import find_runbook
from fleetctl.runbooks.runner import RunRequest, RunResult, draft_run, resume_run, run_runbook
from fleetctl.runbooks.scheduled import run_scheduled
from fleetctl.units import parse_duration_s, parse_usd

Wait = Annotated[
    str, typer.Option("--wait", metavar="DURATION", help="Wait so long for another run on the fleet; else exit 7.")
]


def run(
    ctx: typer.Context,
    runbook: Annotated[
        str,
        typer.Argument(
            metavar="RUNBOOK",
            help="A runbook's file, or the name of one (see `runbook list`).",
            autocompletion=suggestions.runbooks,
        ),
    ],
    *,
    fleet: FleetLongOption = "",
    param: Annotated[list[str], typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter's value.")] = [],  # noqa: B006  # typer copies it
    force: Annotated[bool, typer.Option("--force", help="Run again though this period's run has succeeded.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Give every approval it asks for.")] = False,
    dry_run: DryRun = False,
    max_cost: Annotated[
        str, typer.Option("--max-cost", metavar="USD", help="Fail before a step that would have it cost more an hour.")
    ] = "",
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="Fail once it has taken this long.")
    ] = "",
    wait: Wait = "0s",
    scheduled: Annotated[
        bool,
        typer.Option("--scheduled", help="By the clock: do nothing unless its schedule has a run due, or one was cut."),
    ] = False,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="With --scheduled: runs before it were never missed.")
    ] = "",
    output: Output = Format.TABLE,
    quiet: Quiet = False,
) -> None:
    """Run a runbook on a fleet: its steps in order, each on record before and after.

    One run stands for one period (the hour, or the schedule's own): where it has succeeded there is nothing to do,
    where it was cut or waits it is gone on with, where it failed it is run anew. Without a terminal nothing is printed
    while all is well. With -o json each step is a line once it is over, and the run is the last.
    """
    site = site_of(ctx)
    request = RunRequest(
        found=find_runbook(runbook),
        fleet=fleet,
        parameters=_parameters(param),
        max_cost_usd_per_hour=parse_usd(max_cost) if max_cost else None,
        timeout_s=parse_duration_s(timeout) if timeout else None,
        wait_s=parse_duration_s(wait),
        is_forced=force,
    )
    if dry_run:
        _print_plan(plan_run(site, draft_run(site, request)), output)
        return
    with _progress(quiet=quiet) as progress, Interruptible() as interruptible:
        company = _company(progress, output, interruptible, answer=True if yes else None)
        result = (
            run_scheduled(site, request, company, since=_instant(since))
            if scheduled
            else run_runbook(site, request, company)
        )
        if result is not None:
            _finish(result, output, progress)


def _print_plan(plan: RunbookPlan, output: Format) -> None:
    """Print what a run would do, and exit as it would: by the first step that it would fail at as far as is known now."""
    emit(plan_view(plan), output)
    failing = next((each for each in plan.steps if each.exit_code), None)
    if failing is None or plan.earlier_status is RunStatus.SUCCEEDED:
        return
    why = "it would cost more than the cap" if failing.is_over_cap else failing.reason
    error = FleetctlError(f"the run would fail at {failing.name}: {why}", hint="nothing was changed")
    error.exit_code = failing.exit_code  # type: ignore[misc]  # the step's own, not its class's
    raise error


def resume(
    ctx: typer.Context,
    run_id: Annotated[
        str,
        typer.Argument(metavar="RUN", help="The run's id (see `runbook history`).", autocompletion=suggestions.runs),
    ],
    *,
    fleet: FleetLongOption = "",
    approve: Annotated[bool, typer.Option("--approve", help="Give the approval it waits for.")] = False,
    reject: Annotated[
        bool, typer.Option("--reject", help="Refuse the approval: the run fails and is rolled back.")
    ] = False,
    wait: Wait = "0s",
    output: Output = Format.TABLE,
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was cut, or waits for an approval: as it was begun, whatever its file says by now.

    A step that was cut is taken again where that leads to the same end; a notification is not sent twice.
    """
    if approve and reject:
        raise ConfigError("--approve and --reject say two things", hint="pass one of them")
    answer = approve if approve or reject else None
    with _progress(quiet=quiet) as progress, Interruptible() as interruptible:
        company = _company(progress, output, interruptible, answer=answer, is_once=True)
        result = resume_run(
            site_of(ctx), run_id, company, fleet=fleet, wait_s=parse_duration_s(wait), is_answered=answer is not None
        )
        _finish(result, output, progress)


def _instant(text: str) -> datetime | None:
    """Return an instant from its ISO 8601 spelling; None: none is given. Raises ConfigError."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--since {text!r} is no time", hint="write 2026-11-23T07:30:00Z") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _parameters(given: list[str]) -> dict[str, str]:
    """Return --param NAME=VALUE by name. Raises ConfigError."""
    wrong = [text for text in given if "=" not in text]
    if wrong:
        raise ConfigError(f"{wrong[0]!r} gives no parameter a value", hint="write --param NAME=VALUE")
    return dict(tuple(text.split("=", 1)) for text in given)  # type: ignore[misc]  # each has two parts


def _progress(*, quiet: bool) -> Progress:
    """Return where it is told what goes on: nowhere without a terminal, so that cron has nothing to mail."""
    return Progress(quiet=quiet or not sys.stderr.isatty())


def _company(
    progress: Progress, output: Format, interruptible: Interruptible, *, answer: bool | None, is_once: bool = False
) -> Company:
    answers = [answer] if is_once else None

    def approves(message: str) -> bool | None:
        given = answer if answers is None else answers.pop() if answers else None
        if given is not None:
            return given
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        return confirm(message, yes=False)

    def on_step(run: RunbookRun, record: StepRecord) -> None:
        view = step_view(run, record)
        if output is Format.JSON:
            write(json_line(view))
        else:
            progress.note(text_of(view, Format.TABLE).rstrip("\n"))

    return Company(
        tell=progress.update, approves=approves, on_step=on_step, on_record=interruptible.keep, environ=os.environ
    )


def _finish(result: RunResult, output: Format, progress: Progress) -> None:
    """Print how a run stands, and exit by it: silent where all is well and nobody watches."""
    run = result.run
    if output is Format.JSON:
        write(json_line(run_view(run)))
    elif output is not Format.TABLE:
        emit(run_view(run), output)
    if result.is_earlier:
        progress.note(f"nothing to do: {run.id} stands for this period, and has succeeded; run it again: --force")
        return
    if run.status is RunStatus.SUCCEEDED:
        progress.note(f"{run.id}: succeeded")
        return
    failed = next((each for each in reversed(run.steps) if each.exit_code == run.exit_code and each.hint), None)
    hint = f"{failed.hint}; " if failed is not None and run.status is RunStatus.FAILED else ""
    raise _end_error(run, hint=f"{hint}all of it: {_history(run)}")


def _history(run: RunbookRun) -> str:
    return " ".join(filter(None, ("fleetctl runbook history", run.fleet, f"--run {run.id}")))


def _end_error(run: RunbookRun, *, hint: str) -> FleetctlError:
    """Return the error for a run that failed, or waits: it exits as the step did that the run ended at."""
    waits = run.status is RunStatus.WAITING
    verb = "" if waits else f"{run.label} failed{' at' if run.steps else ':'} "
    error = FleetctlError(
        f"{verb}{run.reason}", hint=f"fleetctl runbook resume {run.id} --approve; or --reject" if waits else hint
    )
    error.exit_code = run.exit_code  # type: ignore[misc]  # the run's own, not its class's
    return error

"""`fleetctl audit`."""

from datetime import datetime, timedelta
from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.options import Output
from fleetctl.cli.output import Format, View, emit, section
from fleetctl.cli.site import site_of
from fleetctl.model.audit import AuditRecord, AuditResult
from fleetctl.operations.audit import audit_log
from fleetctl.units import parse_duration_s
from fleetctl.views.figures import format_clock_time
from fleetctl.views.table import Cell, Tone, cell, text_table

_COLUMNS = "TIME WHO +FROM FLEET ACTION RESULT +EXIT WHAT"
_TONES = {
    AuditResult.OK: Tone.PLAIN,
    AuditResult.WAITING: Tone.WARN,
    AuditResult.REFUSED: Tone.WARN,
    AuditResult.FAILED: Tone.BAD,
    AuditResult.STARTED: Tone.DIM,
    AuditResult.KILLED: Tone.BAD,
}


def audit(
    ctx: typer.Context,
    *,
    fleet: Annotated[
        str,
        typer.Option(
            "--fleet", "-f", metavar="FLEET", help="Only this one, gone or not.", autocompletion=suggestions.fleets
        ),
    ] = "",
    since: Annotated[str, typer.Option("--since", metavar="DURATION", help="Only the last of it: 24h, 7d.")] = "",
    who: Annotated[
        str, typer.Option("--who", metavar="NAME", help="Only of this user, user@host, cron, runbook, run or terminal.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=20_000, help="How many, the newest.")] = 100,
    output: Output = Format.TABLE,
) -> None:
    """Show who changed what, oldest first: people, runbooks and the TUI, refused and failed attempts too.

    It is kept apart from any fleet: what was done to one that is gone is still there. Dry runs are not in it.
    """
    site = site_of(ctx)
    start = site.clock.now() - timedelta(seconds=parse_duration_s(since)) if since else None
    found = audit_log(site, fleet=fleet or None, since=start, who=who, limit=limit)
    emit(audit_view(found, now=site.clock.now()), output)


def audit_view(found: tuple[AuditRecord, ...], *, now: datetime) -> View:
    """Return `audit`: a line an entry, oldest first."""
    rows = (_row(entry, now) for entry in found)
    names = tuple(f"{entry.at.isoformat()}/{entry.action}" for entry in found)
    return View(value=list(found), names=names, sections=(section(text_table(_COLUMNS, rows)),))


def _row(entry: AuditRecord, now: datetime) -> tuple[str | Cell, ...]:
    actor = entry.actor
    what = "; ".join(entry.changes) or " ".join(entry.argv)
    return (
        format_clock_time(entry.at, now),
        actor.name or "unknown",
        f"{actor.channel} {actor.origin}".strip(),
        entry.fleet or "-",
        entry.action,
        _result(entry),
        str(entry.exit_code) if entry.exit_code >= 0 else "?",
        f"{what}; {entry.message}" if entry.message else what,
    )


def _result(entry: AuditRecord) -> Cell:
    """Return the result; of what may have been changed and ended badly all the same, with the exit code that says how."""
    is_partial = entry.result in (AuditResult.FAILED, AuditResult.WAITING) and entry.exit_code > 0
    return cell(f"{entry.result}, exit {entry.exit_code}" if is_partial else entry.result, _TONES[entry.result])

"""`fleetctl doctor`."""

import typer

from fleetctl.cli.options import Output
from fleetctl.cli.output import Format, View, emit, lines, section
from fleetctl.cli.site import site_of
from fleetctl.model.preflight import Verdict
from fleetctl.operations.doctor import diagnose
from fleetctl.views.preflight import verdict_cell
from fleetctl.views.table import text_table


def doctor(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """Check this machine and what fleetctl left on it; say what to mend. Exits 1 if something will not work."""
    checks = diagnose(site_of(ctx))
    rows = [(verdict_cell(check.verdict), check.name, check.found) for check in checks]
    advice = [f"{check.name}: {check.advice}" for check in checks if check.advice and check.verdict is not Verdict.OK]
    sections = [section(text_table("VERDICT CHECK FOUND", rows))]
    if advice:
        sections.append(lines(*advice, title="To do"))
    emit(View(value=checks, names=tuple(check.name for check in checks), sections=tuple(sections)), output)
    if any(check.verdict is Verdict.FAIL for check in checks):
        raise typer.Exit(1)

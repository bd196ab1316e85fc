"""`fleetctl doctor`."""

from dataclasses import replace
from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.options import Output
from fleetctl.cli.output import Format, View, emit, lines, section
from fleetctl.cli.site import site_of
from fleetctl.model.preflight import Verdict
from fleetctl.operations.doctor import diagnose
from fleetctl.operations.profile_checks import diagnose_profile
from fleetctl.views.preflight import verdict_cell
from fleetctl.views.table import cell, text_table


def doctor(
    ctx: typer.Context,
    profile: Annotated[
        str,
        typer.Argument(
            metavar="[PROFILE]",
            help="A profile's file or name: what it needs before `up`, in place of the machine as a whole.",
            show_default=False,
            autocompletion=suggestions.profiles,
        ),
    ] = "",
    output: Output = Format.TABLE,
) -> None:
    """Check this machine and what fleetctl left on it; say what to mend. Exits 1 if something will not work.

    Of a PROFILE: whether it can be planned, its secrets, port, engines, weights (with their room on the disk and a gated
    model's HF_TOKEN), and what its provider finds. Nothing is started or fetched.
    """
    checks = diagnose_profile(site_of(ctx), profile) if profile else diagnose(site_of(ctx))
    rows = [(verdict_cell(check.verdict), check.name, replace(cell(check.found), is_whole=True)) for check in checks]
    advice = [f"{check.name}: {check.advice}" for check in checks if check.advice and check.verdict is not Verdict.OK]
    sections = [section(text_table("VERDICT CHECK FOUND", rows))]
    if advice:
        sections.append(lines(*advice, title="To do"))
    emit(View(value=checks, names=tuple(check.name for check in checks), sections=tuple(sections)), output)
    if any(check.verdict is Verdict.FAIL for check in checks):
        raise typer.Exit(1)

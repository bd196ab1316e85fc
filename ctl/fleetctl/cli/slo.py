"""`fleetctl slo`."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer

from fleetctl.cli.absence import read_fleet
from fleetctl.cli.options import Fleet
from fleetctl.cli.output import Format, emit, write
from fleetctl.cli.site import site_of
from fleetctl.cli.slo_view import slo_view
from fleetctl.operations.slo_report import slo_report
from fleetctl.printable import printable
from fleetctl.units import parse_duration_s
from fleetctl.views.slo import slo_markdown
from fleetctl.views.slo_page import slo_page


class ReportFormat(StrEnum):
    """The values of -o, and pages to send."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    MARKDOWN = "markdown"
    HTML = "html"


def slo(
    ctx: typer.Context,
    fleet: Fleet = "",
    since: Annotated[
        str,
        typer.Option("--since", metavar="DURATION", help="How far back; left out: the objective's window."),
    ] = "",
    output: Annotated[
        ReportFormat, typer.Option("--output", "-o", help="How to print; markdown and html are pages to send.")
    ] = ReportFormat.TABLE,
) -> None:
    """Show what was promised and kept: attainment, the error budget that is left, burn rates, the worst hours.

    BUDGET LEFT is over the objective's window, whatever --since. A burn of 1x spends just the budget; -o wide shows every
    window and what was decided in the worst hours.
    """
    site = site_of(ctx)
    back = timedelta(seconds=parse_duration_s(since)) if since else None
    report = slo_report(site, read_fleet(site, fleet), back)
    if output is ReportFormat.MARKDOWN:
        write(printable(slo_markdown(report), keeps_lines=True))
        return
    if output is ReportFormat.HTML:
        write(slo_page(report))
        return
    emit(slo_view(report), Format(output.value))

"""The step that reports: how the fleet kept its SLO, as a page to send or to file."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError
from fleetctl.files import write_whole
from fleetctl.operations.slo_report import slo_report
from fleetctl.views.slo import slo_markdown
from fleetctl.views.slo_page import slo_page

if TYPE_CHECKING:
    from fleetctl.model.runbook import Json
    from fleetctl.model.runbook_steps import ReportStep
    from fleetctl.runbooks.context import StepContext

# A receiver takes 20,000 characters of text at most (config/runbook_step_shapes), its heading included.
_TEXT_CHARS_MAX = 16_000


def report(context: StepContext, wanted: ReportStep) -> dict[str, Json]:
    """Return the report as Markdown, bounded, and write all of it to a file where one is named: HTML to NAME.html."""
    since = timedelta(seconds=wanted.since_s) if wanted.since_s is not None else None
    found = slo_report(context.site, context.fleet, since)
    page = slo_markdown(found)
    if wanted.file:
        _write(Path(wanted.file).expanduser(), slo_page(found) if wanted.file.endswith(".html") else page)
    return {"text": _bounded(page, context.fleet), "file": wanted.file}


def _write(file: Path, page: str) -> None:
    try:
        write_whole(file, page.encode(), mode=0o644)
    except OSError as exc:
        raise FleetctlError(f"{file} cannot be written: {exc.strerror}", hint="name a file you may write") from exc


def _bounded(page: str, fleet: str) -> str:
    """Return the page, or its first whole lines and where to read the others."""
    if len(page) <= _TEXT_CHARS_MAX:
        return page
    kept = page[:_TEXT_CHARS_MAX].rpartition("\n")[0]
    return f"{kept}\n\nThe rest: fleetctl slo {fleet} -o markdown\n"

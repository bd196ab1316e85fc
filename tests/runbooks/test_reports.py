"""The step that reports: the page of `fleetctl slo`, to send on, to file, and to read again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.cli.runbook_views import run_view, step_view
from fleetctl.model.runbook_run import RunStatus
from fleetctl.operations.slo_report import slo_report
from fleetctl.runbooks import reports
from fleetctl.runbooks.dry_run import plan_run
from fleetctl.runbooks.runner import draft_run
from fleetctl.testing import samples
from fleetctl.views.slo import slo_markdown

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.runbooks.conftest import Rig

REPORT = "steps:\n  - name: report\n    report: {since: 1h}\n"


def test_the_page_is_the_one_that_the_command_prints_and_a_later_step_has_it(rig: Rig) -> None:
    body = REPORT + "  - check: {that: \"steps.report.result.text.startsWith('# SLO of demo')\"}\n"
    run = rig.run(body).run
    assert run.status is RunStatus.SUCCEEDED
    assert run.steps[0].result["text"] == slo_markdown(slo_report(rig.fakes.site, "demo", timedelta(hours=1)))


def test_it_is_written_to_a_file_over_the_last_one(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "slo.md"
    file.write_text("last week's")
    run = rig.run(REPORT.replace("since: 1h", f"file: '{file}'")).run
    assert file.read_text() == run.steps[0].result["text"]


def test_a_file_called_html_is_the_page_with_plots(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "slo.html"
    run = rig.run(REPORT.replace("since: 1h", f"file: '{file}'")).run
    assert file.read_text().startswith("<!doctype html>")
    assert str(run.steps[0].result["text"]).startswith("# SLO of ")


def test_a_file_that_cannot_be_written_fails_the_step_and_says_which(rig: Rig, tmp_path: Path) -> None:
    run = rig.run(REPORT.replace("since: 1h", f"file: '{tmp_path / 'no' / 'slo.md'}'")).run
    assert run.status is RunStatus.FAILED
    assert f"{tmp_path / 'no' / 'slo.md'} cannot be written" in run.reason


def test_a_span_beyond_what_is_kept_is_refused(rig: Rig) -> None:
    run = rig.run(REPORT.replace("1h", "999d")).run
    assert (run.exit_code, run.status) == (3, RunStatus.FAILED)


def test_a_page_too_long_to_send_is_cut_at_a_line_and_says_where_the_rest_is(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reports, "_TEXT_CHARS_MAX", 120)
    file = tmp_path / "slo.md"
    text = str(rig.run(REPORT.replace("since: 1h", f"file: '{file}'")).run.steps[0].result["text"])
    kept, _, rest = text.partition("\n\nThe rest: ")
    assert file.read_text().startswith(f"{kept}\n")
    assert rest == "fleetctl slo demo -o markdown\n"


def test_a_plan_says_that_what_follows_goes_by_the_run_and_changes_no_cost(rig: Rig) -> None:
    body = REPORT + '  - notify: {message: the week, text: "${{ steps.report.result.text }}"}\n'
    _, step = plan_run(rig.fakes.site, draft_run(rig.fakes.site, rig.request(body))).steps
    assert step.reason == "its arguments are about steps of the run"
    assert step.cost_usd_per_hour == samples.plan().cost_usd_per_hour


def test_a_table_shows_the_first_line_of_it(rig: Rig) -> None:
    run = rig.run(REPORT).run
    shown = [step_view(run, run.steps[0]), run_view(run)]
    for view in shown:
        text = "".join(map(str, view.sections))
        assert "# SLO of demo" in text
        assert "## Worst hours" not in text

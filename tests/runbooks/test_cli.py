"""`fleetctl runbook`: what it prints, to whom, and what it exits with."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.cli.main import main
from fleetctl.codec import to_plain
from fleetctl.model.notification import Delivery
from fleetctl.model.runbook_run import RunStatus
from fleetctl.operations.audit import audit_log
from fleetctl.paths import config_dir
from fleetctl.runbooks.run_log import put_run, runs_of
from fleetctl.testing import samples
from tests.cli.conftest import Ran
from tests.cli.test_json_reference import differences
from tests.runbooks.conftest import HEAD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.runbooks.conftest import Rig

SCALE = """\
description: Warm the short lane.
schedule: "30 7 * * 1-5"
params: {replicas: {type: int, default: 3, description: how many}}
steps:
  - name: warm
    scale: {lane: short, replicas: "${{ params.replicas }}"}
  - name: look
    check: {that: "lanes.short.ready > 0"}
"""
GATE = 'steps:\n  - name: gate\n    approve: {message: "Go on?"}\n  - scale: {lane: short, replicas: 3}\n'


@pytest.fixture
def fleetctl(rig: Rig, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run one command line on the rig's site."""

    def run(*argv: str) -> Ran:
        code = main(argv, site=rig.fakes.site)
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], str]:
    def write(body: str) -> str:
        path = tmp_path / "nightly.yaml"
        path.write_text(HEAD + body)
        return str(path)

    return write


def test_where_nobody_watches_a_run_that_goes_well_prints_nothing(fleetctl, file):
    assert fleetctl("runbook", "run", file(SCALE)) == Ran(code=0, out="", err="")
    assert fleetctl("runbook", "run", file(SCALE)) == Ran(code=0, out="", err="")


def test_with_json_each_step_is_a_line_and_the_run_is_the_last(fleetctl, file):
    ran = fleetctl("runbook", "run", file(SCALE), "-o", "json")
    *steps, last = [json.loads(line) for line in ran.out.splitlines()]
    assert [each["step"]["name"] for each in steps] == ["warm", "look"]
    assert last["status"] == "succeeded"
    assert [found for each in steps for found in differences(each, "StepAnswer", "run")] == []
    assert differences(last, "RunAnswer", "run") == []


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (("run", "FILE", "--dry-run"), "RunbookPlan"),
        (("show", "FILE"), "ShownRunbook"),
        (("lint", "FILE"), "LintAnswer"),
        (("history",), "RunAnswer"),
        (("list",), "ListedRunbook"),
    ],
)
def test_every_answer_has_exactly_the_documented_keys(fleetctl, file, argv, name):
    fleetctl("runbook", "run", file(SCALE), "--param", "replicas=2")
    ran = fleetctl("runbook", *(file(SCALE) if word == "FILE" else word for word in argv), "-o", "json")
    printed = json.loads(ran.out)
    for each in printed if isinstance(printed, list) else [printed]:
        assert differences(each, name, argv[0]) == []


def test_a_dry_run_names_cost_and_forecast_and_writes_nothing(fleetctl, file, rig):
    ran = fleetctl("runbook", "run", file(SCALE), "--dry-run", "--max-cost", "$1")
    assert ran.code == 6
    assert "error: the run would fail at warm: it would cost more than the cap" in ran.err
    assert "dry run, nothing was changed" in ran.out
    assert "OVER CAP" in ran.out
    assert "short x3: " in ran.out
    assert runs_of(rig.fakes.store) == ()
    assert rig.replicas("short") is None


@pytest.mark.parametrize(
    ("body", "argv", "code"),
    [
        (SCALE, (), 0),
        (SCALE, ("--param", "replicas=99"), 3),
        (SCALE, ("--param", "replicas=12345678901234567890123"), 3),
        (SCALE, ("--param", "replicas=1e400"), 3),
        ("steps:\n  - scale: {lane: nope, replicas: 2}\n", (), 8),
        ("steps:\n  - scale: {lane: nope, replicas: 2}\n    continue_on_error: true\n", (), 0),
        ("steps:\n  - scale: {lane: nope, replicas: 2}\n    if: 'false'\n", (), 0),
        ("steps:\n  - check: {that: 'true'}\non_failure:\n  - scale: {lane: nope, replicas: 2}\n", (), 0),
        ("steps:\n  - check: {that: 'lanes.short.ready >= 99'}\n", (), 5),
        ("steps:\n  - check: {}\n", (), 9),
    ],
)
def test_a_dry_run_exits_as_the_run_would_as_far_as_is_known(fleetctl, file, body, argv, code):
    ran = fleetctl("runbook", "run", file(body), "--dry-run", *argv)
    assert ran.code == code
    assert "Traceback" not in ran.err


def test_the_history_of_a_run_says_what_became_of_each_notification(fleetctl, file, rig):
    fleetctl("runbook", "run", file(SCALE), "--param", "replicas=2")
    (run,) = runs_of(rig.fakes.store)
    deliveries = [
        Delivery(receiver="slack env:HOOK", is_delivered=True, attempts=1),
        Delivery(receiver="webhook env:URL", is_delivered=False, attempts=3, fault="HTTP 500"),
        Delivery(receiver="pagerduty env:KEY", is_delivered=False, attempts=2, fault="no answer", is_uncertain=True),
    ]
    step = replace(run.steps[0], result={"deliveries": to_plain(deliveries)})
    put_run(rig.fakes.store, replace(run, steps=(step, *run.steps[1:])))
    out = fleetctl("runbook", "history", "--run", run.id).out
    assert "slack env:HOOK: delivered; webhook env:URL: not delivered after 3 attempts, HTTP 500; " in out
    assert "pagerduty env:KEY: may have arrived after 2 attempts, no answer" in out
    assert "is_delivered" not in out


def test_a_failed_run_names_the_step_the_cause_and_where_to_look(fleetctl, file):
    ran = fleetctl("runbook", "run", file('steps:\n  - check: {that: "false", message: it is broken}\n'))
    assert (ran.code, ran.out) == (5, "")
    assert "error: runbook nightly on demo failed at check-1: it is broken" in ran.err
    assert "fleetctl runbook history demo --run nightly-20260105-120000" in ran.err


@pytest.mark.parametrize(
    ("body", "argv", "code"),
    [
        (SCALE, ("--fleet", "nowhere"), 8),
        (SCALE, ("--param", "replicas=two"), 3),
        (SCALE, ("--param", "replicas"), 3),
        (SCALE, ("--max-cost", "$0.1"), 6),
        ("steps:\n  - wait: {ready: 99}\n", ("--timeout", "5s"), 9),
        (GATE, (), 16),
        ("steps:\n  - scal: {}\n", (), 3),
    ],
)
def test_the_exit_code_says_what_ended_it(fleetctl, file, body, argv, code):
    ran = fleetctl("runbook", "run", file(body), *argv)
    assert ran.code == code
    assert ran.err.startswith("error:")


def test_a_second_run_on_the_fleet_exits_with_the_locks_code(fleetctl, file, rig):
    rig.fakes.host.held.add(("demo", "runbook"))
    assert fleetctl("runbook", "run", file(SCALE)).code == 7


def test_an_approval_is_given_by_resume(fleetctl, file, rig):
    waiting = fleetctl("runbook", "run", file(GATE))
    assert "fleetctl runbook resume nightly-20260105-120000 --approve" in waiting.err
    assert fleetctl("runbook", "resume", "nightly-20260105-120000").code == 16
    assert fleetctl("runbook", "resume", "nightly-20260105-120000", "--approve").code == 0
    assert rig.replicas("short") == 3


def test_an_approval_is_refused_by_resume(fleetctl, file, rig):
    fleetctl("runbook", "run", file(GATE))
    ran = fleetctl("runbook", "resume", "nightly-20260105-120000", "--reject")
    assert ran.code == 1
    assert "failed at gate: rejected: Go on?" in ran.err
    assert rig.replicas("short") is None


def test_yes_gives_every_approval(fleetctl, file):
    assert fleetctl("runbook", "run", file(GATE), "--yes").code == 0


def test_lint_prints_every_fault_and_exits_3(fleetctl, file):
    ran = fleetctl(
        "runbook", "lint", file(SCALE.replace("lanes.short.ready", "lanes.short.redy").replace("7 *", "27 *"))
    )
    assert ran.code == 3
    assert "nightly.yaml:5: schedule: " in ran.err
    assert fleetctl("runbook", "lint", file(SCALE)).out.endswith("nightly.yaml: ok\n")


def test_show_tells_parameters_schedule_and_next_run(fleetctl, file):
    out = fleetctl("runbook", "show", file(SCALE)).out
    assert "Warm the short lane." in out
    assert "how many" in out
    assert "Next run  2026-01-06 07:30 UTC" in out


def test_history_tells_who_when_and_what_came_of_it(fleetctl, file):
    fleetctl("runbook", "run", file(SCALE))
    out = fleetctl("runbook", "history", "demo").out
    assert "nightly-20260105-120000" in out
    assert "2/2" in out
    one = fleetctl("runbook", "history", "--run", "nightly-20260105-120000").out
    assert "after=3" in one


def test_one_of_your_own_directory_is_run_by_its_name(fleetctl):
    directory = config_dir() / "profiles" / "runbooks"
    directory.mkdir(parents=True)
    (directory / "nightly.yaml").write_text(HEAD + SCALE)
    (directory / "broken.yaml").write_text(HEAD)
    listed = fleetctl("runbook", "list").out
    assert "Warm the short lane." in listed
    assert "steps: is missing" in listed
    assert fleetctl("runbook", "run", "nightly").code == 0
    assert "did you mean 'nightly'?" in fleetctl("runbook", "run", "nightli").err


def test_a_read_only_site_runs_none(fleetctl, file, rig):
    ran = fleetctl("--readonly", "runbook", "run", file(SCALE))
    assert ran.code == 3
    assert runs_of(rig.fakes.store) == ()


def test_the_schema_of_the_runbook_is_printed(fleetctl):
    assert json.loads(fleetctl("schema", "runbook").out)["title"] == "fleetctl runbook"


def test_the_audit_log_has_a_run_as_it_was_typed_with_what_its_steps_did(fleetctl, file, rig):
    fleetctl("runbook", "run", file(SCALE))
    (entry,) = audit_log(rig.fakes.site)
    assert (entry.action, entry.fleet, entry.result) == ("runbook run", "demo", "ok")
    assert any("run nightly-20260105-120000" in change for change in entry.changes)
    assert any("short" in change and "3" in change for change in entry.changes)


@pytest.mark.parametrize(
    ("steps", "options", "expected"),
    [
        ("  - scale: {lane: short, replicas: 3}\n", ("--max-cost", "$0.01"), ("refused", 6)),
        ("  - check: {that: 'false'}\n  - scale: {lane: short, replicas: 3}\n", (), ("refused", 5)),
        ("  - scale: {lane: short, replicas: 3}\n  - check: {that: 'false'}\n", (), ("failed", 5)),
        ("  - wait: {until: 'false'}\n    timeout: 1s\n", (), ("failed", 9)),
        ("  - scale: {lane: short, replicas: 3}\n", (), ("ok", 0)),
        ("  - approve: {message: 'Go on?'}\n", (), ("waiting", 16)),
    ],
    ids=["over the cap", "check first", "check after a change", "timeout", "succeeded", "waits"],
)
def test_the_audit_logs_result_of_a_run_agrees_with_its_exit_code(fleetctl, file, rig, steps, options, expected):
    assert fleetctl("runbook", "run", file(f"steps:\n{steps}"), *options).code == expected[1]
    (entry,) = audit_log(rig.fakes.site)
    assert (entry.result, entry.exit_code) == expected


def test_a_run_that_is_refused_after_an_approval_for_what_it_did_before_has_failed(fleetctl, file, rig):
    body = "steps:\n  - scale: {lane: short, replicas: 3}\n  - approve: {message: 'Go on?'}\n"
    assert fleetctl("runbook", "run", file(body)).code == 16
    (run,) = runs_of(rig.fakes.store)
    assert fleetctl("runbook", "resume", run.id, "--reject").code == 1
    assert [(e.result, e.exit_code) for e in audit_log(rig.fakes.site)] == [("waiting", 16), ("failed", 1)]


def test_the_history_says_how_to_go_on_with_a_run_whose_process_may_be_gone(fleetctl, file, rig):
    run = rig.run(SCALE).run
    put_run(rig.fakes.store, replace(run, status=RunStatus.RUNNING, ended_at=None))
    assert f"if its process is gone: fleetctl runbook resume {run.id}" in fleetctl("runbook", "history").out


@pytest.mark.parametrize("answer", ["--approve", "--reject"])
def test_an_answer_to_a_run_that_is_over_is_an_error(fleetctl, file, rig, answer):
    rig.run(SCALE)
    (run,) = runs_of(rig.fakes.store)
    ran = fleetctl("runbook", "resume", run.id, answer)
    assert (ran.code, ran.out) == (3, "")
    assert f"error: {run.id} waits for no approval: it succeeded at 2026-01-05 12:00:00 UTC" in ran.err
    assert fleetctl("runbook", "resume", run.id).code == 0


def test_a_run_of_a_file_is_run_again_by_its_file(fleetctl, file, rig):
    path = file("steps:\n  - check: {that: 'false'}\n")
    fleetctl("runbook", "run", path)
    (run,) = runs_of(rig.fakes.store)
    ran = fleetctl("runbook", "resume", run.id)
    assert (ran.code, f"hint: run it again: fleetctl runbook run {path}\n" in ran.err) == (3, True)


def test_a_run_under_way_has_no_exit_code_yet(fleetctl, rig):
    run = rig.run(SCALE).run
    put_run(rig.fakes.store, replace(run, status=RunStatus.RUNNING, ended_at=None))
    (line,) = [line for line in fleetctl("runbook", "history").out.splitlines() if run.id in line]
    assert " - " in line


def test_an_approval_says_to_the_second_until_when(fleetctl, file):
    body = GATE.replace('"Go on?"', '"Go on?", expires: 20s')
    assert "waits for an approval until 2026-01-05 12:00:20 UTC" in fleetctl("runbook", "run", file(body)).err


@pytest.mark.parametrize(
    ("number", "code", "verb"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_run_that_is_ended_from_outside_says_where_it_stands_and_how_to_go_on(
    fleetctl, file, rig, number, code, verb
):
    body = "steps:\n  - scale: {lane: short, replicas: 3}\n  - name: look\n    wait: {until: 'false'}\n"
    rig.fakes.clock.sleep_blocking = lambda _: signal.raise_signal(number)
    before = signal.getsignal(signal.SIGTERM)
    ran = fleetctl("runbook", "run", file(body))
    (run,) = runs_of(rig.fakes.store)
    assert ran.code == code
    assert ran.err == (
        f"{verb}: {run.id} at step look; what was done stays as it is (scale-1), nothing is rolled back\n"
        f"go on with it: fleetctl runbook resume {run.id}\n"
    )
    assert (run.status, rig.replicas("short")) == (RunStatus.RUNNING, 3)
    assert signal.getsignal(signal.SIGTERM) is before
    (entry,) = audit_log(rig.fakes.site)
    assert (entry.result, entry.exit_code) == ("failed", code)


def test_a_schedule_without_a_fleet_is_refused_where_there_are_two(fleetctl, file, rig):
    other = replace(samples.profile(), name="other")
    rig.fakes.store.put_fleet(other, replace(samples.plan(), fleet="other"), now=rig.fakes.clock.now())
    ran = fleetctl("runbook", "install-cron", file(SCALE), "--dry-run")
    assert (ran.code, ran.out) == (3, "")
    assert "there are 2 fleets: demo, other" in ran.err


def test_a_scheduled_run_without_a_fleet_says_so_in_plain_words(fleetctl, file, rig):
    other = replace(samples.profile(), name="other")
    rig.fakes.store.put_fleet(other, replace(samples.plan(), fleet="other"), now=rig.fakes.clock.now())
    body = SCALE.replace('"30 7 * * 1-5"', '"* * * * *"')
    ran = fleetctl("runbook", "run", file(body), "--scheduled")
    assert ran.code == 3
    assert "error: runbook nightly failed: there are 2 fleets: demo, other" in ran.err
    assert "fleetctl runbook history --run nightly-20260105-120000" in ran.err


def test_lint_says_what_it_has_not_looked_at_and_finds_profiles_that_are_not_there(fleetctl, file):
    ran = fleetctl("runbook", "lint", file("schedule: 99 * * * *\nsteps:\n  - check: {that: 'nope > 1'}\n"))
    assert "expressions and profiles are looked at once these are mended" in ran.err
    ran = fleetctl("runbook", "lint", file("steps:\n  - up: {profile: nope.yaml}\n"))
    assert (ran.code, "'nope.yaml' is neither a file beside the runbook nor a packaged profile" in ran.err) == (3, True)
    ran = fleetctl("runbook", "lint", file("steps:\n  - notify: {message: hello}\n"))
    assert (ran.code, "step notify-1 tells nobody" in ran.err) == (0, True)


def test_an_empty_runbook_gets_no_advice_on_profiles(fleetctl, tmp_path):
    (tmp_path / "empty.yaml").write_text("")
    ran = fleetctl("runbook", "lint", str(tmp_path / "empty.yaml"))
    assert ran.code == 3
    assert "`fleetctl runbook show pre-warm` names a file to begin with" in ran.err

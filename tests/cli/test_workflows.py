"""Workflows as people see them: `why ID`, `status`, `slo`, `requests --workflow`, the live view's header."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.cli.main import main
from fleetctl.cli.output import Face, Format, text_of
from fleetctl.cli.workflow_view import workflow_view
from fleetctl.core.slo.endings import Ending
from fleetctl.core.workflows.path import trace_of
from fleetctl.core.workflows.tracker import WorkflowLimits
from fleetctl.testing import samples
from fleetctl.tui.header_view import Freshness, header_lines
from fleetctl.views.canvas import PLAIN, Canvas
from fleetctl.views.workflows import workflow_notes
from tests.cli.conftest import Ran
from tests.cli.test_json_reference import differences
from tests.diagnosis.test_request import LATE
from tests.sites import FakeSite
from tests.workflows.played import Call, play, played, tracker_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.workflow_figures import WorkflowSnapshot
    from fleetctl.model.workflow_trace import WorkflowTrace


def research(limits: WorkflowLimits | None = None) -> WorkflowTrace:
    """A question, five searches at once of which the third is late, and a summary; 34 s where 30 s are promised."""
    searches = [Call(2.5, 4 + n / 10, wait_s=0.1, id=b"search-%d" % n) for n in range(5)]
    searches[3] = Call(2.5, 25.5, wait_s=18.9, id=b"search-3")
    failed = Call(2.5, 2.6, ending=Ending.REFUSED, wait_s=None, body=9, id=b"refused")
    calls = [Call(0, 2, wait_s=0.2, id=b"question"), *searches, failed, Call(3, 3.5, body=9, id=b"again")]
    found = played([*calls, Call(26, 34, wait_s=0.4, id=b"summary")], limits)
    return trace_of(found, now_s=100.0, now=samples.EPOCH)


@pytest.fixture
def fakes() -> FakeSite:
    found = FakeSite()
    found.store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    found.start_controller("demo")
    found.host.gateways.add("demo")
    found.host.workflows = (research(),)
    return found


@pytest.fixture
def typed(fakes: FakeSite, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(*argv: str) -> Ran:
        code = main(argv, site=fakes.site)
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


def snapshot() -> WorkflowSnapshot:
    tracker = tracker_of(limits=WorkflowLimits(calls_max=50))
    for number in range(40):
        total_s = 31.0 if number == 7 else 8.0
        play(tracker, [Call(0, 2, wait_s=1, workflow=f"w{number}"), Call(3, total_s, wait_s=1, workflow=f"w{number}")])
    play(tracker, [Call(0, 1, workflow="bad", ending=Ending.ERROR)])
    play(tracker, [Call(0, 1, workflow="everything") for _ in range(60)])
    tracker.sweep(200.0)
    play(tracker, [Call(200, 201)])
    return tracker.snapshot(210.0)


def samples_of_notes(count: int) -> WorkflowSnapshot:
    found = tracker_of().snapshot(1.0)
    return replace(
        found, overgrown=count, untracked_calls=count, ended_early=count, unlawful_ids=count, unknown_parents=count
    )


def test_why_draws_a_workflow_as_a_tree_with_the_branch_that_made_it_late(typed: Callable[..., Ran]) -> None:
    shown = typed("why", "w")
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0] == "w: late, 34s, promised 30s"
    assert "Calls    9, 1 not answered; 3 deep, 6 at once" in lines
    assert "Time     replicas 13.5s (40%), our queues 19.5s (57%), its client 1s (3%)" in lines
    assert "Longest  call 4 at short-1: 23s, 18.9s of it in the queue of short" in lines
    calls = [line.split() for line in lines if line.startswith(("* ", "  ")) and line.split()[-1:] != ["ENDING"]]
    on_path = [row[1] for row in calls if row[0] == "*" and row[1].isdigit()]
    assert on_path == ["0", "4", "8"]
    assert ["6", "short", "-", "100ms", "-", "100/20", "100ms", "repeated"] in calls
    assert max(map(len, lines)) <= 80


def test_the_branches_of_a_call_stand_further_in_than_it_and_what_follows_on_one_does_not() -> None:
    text = text_of(workflow_view([research()], now=samples.EPOCH), Format.TABLE, face=Face(columns=80))
    column = {
        line.split()[line.startswith("*")]: line[2:].index(line[2:].lstrip()[0])
        for line in text.splitlines()
        if line[:2] in ("* ", "  ")
    }
    assert column["0"] == 0
    assert column["1"] == column["4"] == column["6"] == 2
    assert column["8"] == 2  # of the late search alone


def test_a_workflow_that_runs_is_drawn_too_and_so_is_one_of_which_few_calls_are_kept() -> None:
    seen = research(WorkflowLimits(calls_kept_max=3))
    text = text_of(workflow_view([replace(seen, verdict="", calls_running=1)], now=samples.EPOCH), Format.TABLE)
    assert text.startswith("w: late already, 34s so far, promised 30s")
    assert "6 more calls are counted above and not kept" in text


def test_a_chain_of_hundreds_and_a_deep_tree_stay_within_the_terminal() -> None:
    chain = [Call(n, n + 0.5) for n in range(60)]
    nested = [
        Call(60 + n, 200 - n, parent=b"n%d" % (n - 1), id=id_)
        for n in range(20)
        for id_ in (b"n%d" % n, b"twin-%d" % n)
    ]
    found = trace_of(played([*chain, *nested]), now_s=1e4, now=samples.EPOCH)
    text = text_of(workflow_view([found], now=samples.EPOCH), Format.TABLE, face=Face(columns=80))
    assert max(map(len, text.splitlines())) <= 80


def test_json_has_exactly_the_documented_keys(typed: Callable[..., Ran]) -> None:
    (found,) = json.loads(typed("why", "workflow/w", "-o", "json").out)
    assert differences(found, "WorkflowTrace", "why WORKFLOW-ID") == []
    assert (found["verdict"], found["calls_begun"], len(found["calls"])) == ("late", 9, 9)
    assert [call["number"] for call in found["calls"] if call["is_on_path"]] == [0, 4, 8]


def test_an_id_nobody_has_is_said_with_what_joins_calls(typed: Callable[..., Ran]) -> None:
    shown = typed("why", "workflow/nobody")
    assert shown.code != 0
    assert "remembers no workflow 'nobody'" in shown.err
    assert "x-fleetctl-workflow" in shown.err


def test_a_lane_of_the_same_name_comes_first_and_the_workflow_is_pointed_at(
    fakes: FakeSite, typed: Callable[..., Ran]
) -> None:
    fakes.host.workflows = (replace(research(), id="short"),)
    shown = typed("why", "short")
    assert "a workflow has the id 'short' too: fleetctl why workflow/short" in shown.err
    assert typed("why", "workflow/short").out.startswith("short: late")


def test_requests_of_a_workflow_are_listed_by_it(fakes: FakeSite, typed: Callable[..., Ran]) -> None:
    fakes.host.requests = (LATE, replace(LATE, seq=2, id="of-it", workflow="w"))
    assert typed("requests", "--workflow", "w", "-o", "name").out.split() == ["of-it"]


def test_the_calls_of_one_id_show_whose_they_are_where_several_clients_have_a_workflow_of_it(
    fakes: FakeSite, typed: Callable[..., Ran]
) -> None:
    fakes.host.requests = (
        replace(LATE, workflow="w", client="acme"),
        replace(LATE, seq=2, workflow="w", client="beta"),
    )
    titles, *rows = typed("requests", "--workflow", "w").out.splitlines()
    at = titles.split().index("CLIENT")
    assert [row.split()[at] for row in rows] == ["acme", "beta"]
    assert "CLIENT" not in typed("requests").out.splitlines()[0]
    fakes.host.requests = tuple(replace(each, client="acme") for each in fakes.host.requests)
    assert "CLIENT" not in typed("requests", "--workflow", "w").out.splitlines()[0]


def test_what_is_in_no_kind_is_counted_in_whole_sentences() -> None:
    seen = samples_of_notes(1)
    assert list(workflow_notes(seen)) == [
        "1 id with more calls than any action of a user: does a proxy use one trace id for everything?",
        "1 call found no place among the workflows held",
        "1 workflow was ended before it was idle for long, to make place",
        "1 call had an x-fleetctl-workflow that is no lawful id",
        "1 call had an x-fleetctl-parent that is no call of the same workflow",
    ]
    assert "2 workflows were ended before they were idle for long, to make place" in workflow_notes(samples_of_notes(2))


def test_a_name_that_nobody_has_is_said_to_be_no_workflow_either(typed: Callable[..., Ran]) -> None:
    shown = typed("why", "nope-wf")
    assert shown.code == 8
    assert "has no lane or replica 'nope-wf'" in shown.err
    assert "remembers no request 'nope-wf', and no workflow of that id" in shown.err


def test_status_and_slo_have_a_row_a_kind_and_say_what_is_in_none(fakes: FakeSite, typed: Callable[..., Ran]) -> None:
    answer = fakes.host.controllers["demo"]
    assert answer is not None
    status = replace(answer(), workflows=snapshot())
    fakes.host.controllers["demo"] = lambda: status
    for command in ("status", "slo"):
        text = typed(command).out
        (row,) = (line.split() for line in text.splitlines() if line.startswith("agent "))
        assert row == ["agent", "1", "41", "95.12%", "~8s/10s", "~30.9s/30s", "2.0", "2.0", "1.0", "23.3%"]
        assert "\n1 id with more calls than any action of a user" in text
        assert "10 calls found no place" in text
    found = json.loads(typed("status", "-o", "json").out)
    assert differences(found, "FleetStatus", "status") == []
    assert found["workflows"]["kinds"][0]["kind"] == "agent"
    assert "| agent | 1 | 41 | 95.12% |" in typed("slo", "-o", "markdown").out


def test_the_live_view_names_each_kind_with_its_tail_where_there_is_room(fakes: FakeSite) -> None:
    answer = fakes.host.controllers["demo"]
    assert answer is not None
    status = replace(answer(), workflows=snapshot())
    wide, narrow = (
        "".join(
            text
            for text, _ in header_lines(
                status, Canvas(width=width, marks=PLAIN), now=samples.EPOCH, freshness=Freshness(is_live=True)
            )[0]
        )
        for width in (160, 40)
    )
    assert "agent 95.12% P99 ~30.9s/30s" in wide
    assert "agent" not in narrow


def test_nothing_of_workflows_is_shown_where_a_profile_has_none(typed: Callable[..., Ran]) -> None:
    assert "orkflow" not in typed("status").out + typed("slo").out + typed("slo", "-o", "markdown").out

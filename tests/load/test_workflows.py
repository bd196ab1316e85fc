"""Calls of a workflow are sent when those they wait for have ended, by one player for the simulation and the load client."""

from __future__ import annotations

import gzip
import random
import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.slo.judge import COUNTS_ALONE
from fleetctl.errors import ConfigError
from fleetctl.load.calls import TraceCall, call_headers
from fleetctl.load.report import LoadSpec
from fleetctl.load.trace import Arrival, arrivals
from fleetctl.load.workflows import CALL_TRIES_MAX, WorkflowPlayer
from fleetctl.model.verdict import Compliance
from fleetctl.model.workflows import ElapsedTarget, WorkflowKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KIND = WorkflowKind(name="k", targets=(ElapsedTarget(percentile=0.99, limit_s=10.0),))
HEADER = "arrival_s,prompt_tokens,output_tokens,workflow,kind,id,after,think"


def trace_of(path: Path, *rows: str, header: str = HEADER) -> str:
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def played(trace: str, **wanted: object) -> list[Arrival]:
    return list(arrivals(LoadSpec(url="", trace=trace, **wanted), random.Random(1)))  # type: ignore[arg-type]


def calls(found: Sequence[Arrival]) -> list[TraceCall]:
    return [each.call for each in found if each.call is not None]


def test_a_workflows_calls_come_together_and_name_whom_they_wait_for(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path / "t.csv",
        "0,10,5,,,,,",
        "1,10,5,w1,agent,plan,,",
        "1,20,5,w1,,left,plan,0.5",
        "1,20,5,w1,,right,plan,",
        '1,30,5,w1,,,"left, right",2',
        "2,10,5,,,,,",
    )
    found = played(trace)
    assert [each.at_s for each in found] == [0, 1, 1, 1, 1, 2]
    assert [each.call is None for each in found] == [True, False, False, False, False, True]
    assert [(call.name, call.after, call.think_s) for call in calls(found)] == [
        ("plan", (), 0),
        ("left", (0,), 0.5),
        ("right", (0,), 0),
        ("4", (1, 2), 2),
    ]
    assert {(call.workflow, call.kind, call.count) for call in calls(found)} == {("w1", "agent", 4)}


def test_a_looped_trace_has_other_workflows_in_every_lap_and_a_thinned_one_whole_ones(tmp_path: Path) -> None:
    rows = [f"{start},10,5,w{start},agent,,{step or ''}," for start in range(20) for step in range(3)]
    found = calls(played(trace_of(tmp_path / "t.csv", *rows), duration_s=30))
    names = [call.workflow for call in found if call.number == 0]
    assert len(names) == len(set(names)) == 30
    thinned = calls(played(trace_of(tmp_path / "t.csv", *rows), rps=1.0))
    assert 0 < len(thinned) < 60
    assert [call.number for call in thinned] == [0, 1, 2] * (len(thinned) // 3)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (("0,10,5,w,,a,,", "0,10,5,w,,b,c,"), r"t\.csv:3: after 'c' names no call of workflow 'w'"),
        (("0,10,5,w,,a,,", "0,10,5,w,,a,,"), r"t\.csv:3: workflow 'w' has two calls 'a', the first at .*t\.csv:2"),
        (
            ("0,10,5,w,,a,b,", "0,10,5,w,,b,a,"),
            r"t\.csv:2: calls of workflow 'w' wait for each other: a after b after a",
        ),
        (("0,10,5,w,,a,a,",), r"t\.csv:2: .* wait for each other: a after a"),
        (("0,10,5,w,,a,,", "0,10,5,,,,,", "0,10,5,w,,b,,"), r"t\.csv:4: workflow 'w' began at .*t\.csv:2"),
        (("0,10,5,,,,a,",), r"t\.csv:2: after 'a' but no workflow"),
        (("0,10,5,,,,,3",), r"t\.csv:2: think '3' but no workflow"),
        (("0,10,5,w,,,,soon",), r"t\.csv:2: think 'soon'"),
        (("0,10,5,w,x,,,", "0,10,5,w,y,,,"), r"t\.csv:3: workflow 'w' is of kind 'x', and here of 'y'"),
        (("0,10,5,w w,,,,",), r"t\.csv:2: workflow 'w w' is no name"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, rows: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        played(trace_of(tmp_path / "t.csv", *rows))


def test_a_workflow_of_too_many_calls_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write(HEADER + "\n" + "0,10,5,w,,,,\n" * 1001)
    with pytest.raises(ConfigError, match=r":1002: workflow 'w' has more than 1000 calls"):
        played(str(path))


def call_of(
    number: int, count: int, after: tuple[int, ...] = (), *, think_s: float = 0.0, kind: str = "k", workflow: str = "w"
) -> Arrival:
    call = TraceCall(
        workflow=workflow, kind=kind, name=str(number), number=number, count=count, after=after, think_s=think_s
    )
    return Arrival(at_s=0.0, prompt_tokens=1, output_tokens=1, stream=True, call=call)


def test_a_refused_call_is_sent_again_when_it_was_told_to_and_its_workflow_fails_after_the_last_try() -> None:
    player, row = WorkflowPlayer(), call_of(0, 1)
    assert player.arrived(row, 0.0) == 0.0
    for attempt in range(1, CALL_TRIES_MAX):
        assert player.refused(row, float(attempt), 2.0) == attempt + 2.0
    assert player.refused(row, 99.0, 2.0) is None
    (figures,) = player.figures(100.0)
    assert (figures.offered, figures.completed, figures.failed) == (1, 0, {"refused": 1})
    assert figures.retries == CALL_TRIES_MAX - 1
    assert player.open == 0


def test_where_a_call_fails_none_of_those_that_wait_is_sent_nor_one_that_is_due_later() -> None:
    player = WorkflowPlayer((KIND,))
    rows = [call_of(0, 3), call_of(1, 3, think_s=5.0), call_of(2, 3, (0,))]
    assert [player.arrived(row, 0.0) for row in rows] == [0.0, 5.0, None]
    player.failed(rows[0], "error")
    assert not player.is_wanted(rows[1])
    (figures,) = player.figures(6.0)
    assert (figures.failed, figures.good, figures.good_share, figures.undecided) == ({"error": 1}, 0, 0.0, 0)


def test_a_workflow_is_good_within_its_limit_and_undecided_until_that_has_passed() -> None:
    for ends_s, good in ((9.0, 1), (11.0, 0)):
        player, row = WorkflowPlayer((KIND,)), call_of(0, 1)
        player.arrived(row, 0.0)
        assert player.figures(9.0)[0].undecided == 1
        assert player.figures(11.0)[0].undecided == 0
        player.completed(row, ends_s, queued_s=ends_s / 2)
        (figures,) = player.figures(20.0)
        assert (figures.good, figures.good_share) == (good, float(good))
        assert figures.queued_share == pytest.approx(0.5)


def test_the_time_in_queues_is_that_of_the_critical_path() -> None:
    player = WorkflowPlayer()
    rows = [call_of(0, 3), call_of(1, 3), call_of(2, 3, (0, 1))]
    for row in rows:
        player.arrived(row, 0.0)
    player.completed(rows[0], 2.0, queued_s=2.0)
    ((due_s, last),) = player.completed(rows[1], 4.0, queued_s=1.0)
    assert (due_s, last) == (4.0, rows[2])
    assert player.parent(last) == rows[1].call
    player.completed(last, 10.0, queued_s=4.0)
    assert player.figures(10.0)[0].queued_share == pytest.approx((1.0 + 4.0) / 10.0)


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """Calls that wait for some of those before them, shuffled."""
    count = draw(st.integers(1, 9))
    links = [
        tuple(sorted(draw(st.sets(st.integers(0, place - 1), max_size=3)))) if place else () for place in range(count)
    ]
    order = draw(st.permutations(range(count)))
    place_of = {old: new for new, old in enumerate(order)}
    return [tuple(place_of[before] for before in links[old]) for old in order]


@given(graphs(), st.integers(0, 2**32), st.booleans())
def test_every_call_is_sent_once_after_all_it_waits_for_and_think_seconds_after_the_last(
    links: list[tuple[int, ...]], seed: int, at_once: bool
) -> None:
    """`at_once`: calls end as soon as they are sent, before the workflow's others have come."""
    dice, player = random.Random(seed), WorkflowPlayer()
    rows = [call_of(number, len(links), after, think_s=float(number)) for number, after in enumerate(links)]
    due: list[tuple[float, Arrival]] = []
    sent: dict[int, float] = {}
    ended: dict[int, float] = {}

    def end_one(now_s: float) -> float:
        at_s, row = due.pop(dice.randrange(len(due)))
        assert row.call is not None
        assert row.call.number not in sent
        sent[row.call.number] = at_s
        now_s = max(now_s, at_s)
        ended[row.call.number] = now_s
        due.extend(player.completed(row, now_s))
        return now_s

    now_s = 0.0
    for row in rows:
        at_s = player.arrived(row, now_s)
        due += [(at_s, row)] if at_s is not None else []
        while at_once and due:
            now_s = end_one(now_s)
    while due:
        now_s = end_one(now_s) + 1.0
    assert sorted(sent) == list(range(len(links)))
    for number, after in enumerate(links):
        assert all(ended[before] + number <= sent[number] for before in after)
    (figures,) = player.figures(now_s)
    assert (figures.completed, figures.calls, player.open) == (1, len(links), 0)


def test_parents_are_told_by_the_request_id_that_a_call_was_sent_with() -> None:
    first, second = calls([call_of(0, 2), call_of(1, 2, (0,))])
    assert call_headers(first, None) == {
        "x-fleetctl-workflow": "w", "x-fleetctl-workflow-kind": "k", "x-request-id": "w.0",
    }  # fmt: skip
    assert call_headers(second, first)["x-fleetctl-parent"] == "w.0"


def test_rows_without_workflows_are_as_they_were(tmp_path: Path) -> None:
    found = played(trace_of(tmp_path / "t.csv", "0,10,5", "1,20,5", header="arrival_s,prompt_tokens,output_tokens"))
    assert [each.call for each in found] == [None, None]
    assert all(before.at_s <= after.at_s for before, after in pairwise(found))


def test_promises_count_what_failed_and_what_has_run_too_long_and_leave_out_what_may_still_keep_them() -> None:
    targets = (ElapsedTarget(percentile=0.5, limit_s=10.0), ElapsedTarget(percentile=0.9, limit_s=30.0))
    player = WorkflowPlayer((WorkflowKind(name="k", targets=targets),))
    rows = {name: call_of(0, 1, workflow=name) for name in ("fast", "slow", "failed", "begun")}
    for row in rows.values():
        assert player.arrived(row, 0.0) == 0.0
    player.completed(rows["fast"], 5.0)
    player.completed(rows["slow"], 20.0)
    player.failed(rows["failed"], "error")
    (figures,) = player.figures(25.0, confidence=COUNTS_ALONE)

    half, most = figures.promises
    assert (half.name, half.limit, half.samples, half.missed, half.undecided) == ("elapsed P50", 10.0, 4, 3, 0)
    assert (most.name, most.limit, most.samples, most.missed, most.undecided) == ("elapsed P90", 30.0, 3, 1, 1)
    assert [each.compliance for each in figures.promises] == [Compliance.MISSED, Compliance.MISSED]
    assert half.measured == pytest.approx(5.0, rel=0.01)
    assert (figures.offered, figures.good, figures.undecided) == (4, 2, 1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (("0,1,1,w,agnet,,,,a",), r":2: no kind 'agnet' of workflows \(did you mean 'agent'\?\)"),
        (("0,1,1,w,agent,,,,a", "0,1,1,w,nope,,,,a"), r":3: no kind 'nope' of workflows$"),
        (("0,1,1,w,agent,,,,a", "0,1,1,w,,,,,b"), r":3: workflow 'w' is client 'a''s, and here client 'b''s"),
        (("0,1,1,w,agent,,,,a", "0,1,1,w,,,,,"), r":3: workflow 'w' is client 'a''s, and here of no client"),
    ],
)
def test_kinds_that_the_profile_has_not_and_workflows_of_two_clients_are_named_by_their_line(
    tmp_path: Path, rows: tuple[str, ...], message: str
) -> None:
    path = trace_of(tmp_path / "t.csv", *rows, header=f"{HEADER},client")
    with pytest.raises(ConfigError) as caught:
        played(path, kinds=(WorkflowKind(name="agent"),))
    assert re.search(message, caught.value.message)
    assert caught.value.message.startswith(path)


def test_without_kinds_a_trace_may_name_any(tmp_path: Path) -> None:
    (found,) = calls(played(trace_of(tmp_path / "t.csv", "0,1,1,w,nope,,,")))
    assert found.kind == "nope"

"""The tree of a workflow: which call depends on which, and what its time was made of."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.slo.endings import Ending
from fleetctl.core.workflows.path import critical_path, trace_of
from fleetctl.core.workflows.tracker import CallIdentity, WorkflowLimits
from fleetctl.testing.samples import EPOCH
from tests.workflows.played import Call, play, played, tracker_of

spans = st.lists(
    st.tuples(
        st.floats(0, 50).map(lambda x: round(x, 2)),
        st.floats(0.01, 20).map(lambda x: round(x, 2)),
        st.floats(0, 1),
        st.sampled_from((Ending.COMPLETE, Ending.ERROR, Ending.CANCELLED)),
    ),
    min_size=1,
    max_size=25,
)


def calls_of(drawn: list[tuple[float, float, float, Ending]]) -> list[Call]:
    return [
        Call(start_s=start_s, end_s=start_s + total_s, wait_s=total_s * share, ending=ending)
        for start_s, total_s, share, ending in drawn
    ]


@given(spans)
def test_the_tree_is_what_the_rule_says_and_the_time_adds_up(drawn: list[tuple[float, float, float, Ending]]) -> None:
    calls = calls_of(drawn)
    found = played(calls)
    by_id = {call.id: call for call in calls}
    first_s, last_s = min(call.start_s for call in calls), max(call.end_s for call in calls)
    assert found.elapsed_s == pytest.approx(last_s - first_s)
    assert len(found.calls) == found.calls_begun == found.calls_ended == len(calls)
    numbered = {call.number: call for call in found.calls}
    for call in found.calls:
        ended = [other.end_s for other in calls if other.end_s <= call.started_s and other.id != call.id]
        if call.before is None:
            assert ended == []
            assert call.depth == 1
        else:
            assert by_id[numbered[call.before].id].end_s == max(ended)
            assert call.depth == numbered[call.before].depth + 1
    most = max(sum(o.start_s <= call.start_s < o.end_s for o in calls) for call in calls)
    assert found.fan_out == most
    assert found.depth == max(call.depth for call in found.calls)
    assert 0.0 <= found.path_queue_s <= found.path_calls_s + 1e-9
    assert found.path_calls_s <= found.elapsed_s + 1e-9
    assert found.path_calls_s + found.path_client_s == pytest.approx(found.elapsed_s)


@given(spans)
def test_the_critical_path_is_a_chain_to_the_last_end_and_its_parts_are_its_sum(
    drawn: list[tuple[float, float, float, Ending]],
) -> None:
    found = played(calls_of(drawn))
    path = critical_path(found)
    assert path[-1].ended_s == found.last_end_s
    assert path[0].before is None
    for one, other in pairwise(path):
        assert one.ended_s is not None
        assert one.ended_s <= other.started_s
    assert found.path_calls_s == pytest.approx(sum((call.ended_s or 0) - call.started_s for call in path))
    assert found.path_queue_s == pytest.approx(sum(call.queue_s for call in path))


@given(spans)
def test_what_is_not_kept_is_counted_as_exactly_as_what_is(drawn: list[tuple[float, float, float, Ending]]) -> None:
    whole, short = played(calls_of(drawn)), played(calls_of(drawn), WorkflowLimits(calls_kept_max=2))
    assert len(short.calls) == min(2, len(drawn))
    for name in (
        "elapsed_s",
        "path_calls_s",
        "path_queue_s",
        "path_client_s",
        "depth",
        "fan_out",
        "calls_begun",
        "is_failed",
    ):
        assert getattr(short, name) == getattr(whole, name)  # fmt: skip


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 1000))
def test_steps_of_parallel_calls_take_the_slowest_of_each(steps: int, fan_out: int, seed: int) -> None:
    rng = random.Random(seed)
    calls, at_s, slowest = [], 0.0, []
    for _ in range(steps):
        step = [Call(at_s, at_s + rng.uniform(0.1, 5), wait_s=0.05) for _ in range(fan_out)]
        last = max(step, key=lambda call: call.end_s)
        calls += step
        slowest.append(last.id)
        at_s = last.end_s + rng.uniform(0.01, 1)
    found = played(calls)
    assert [call.id for call in critical_path(found)] == slowest
    assert (found.depth, found.fan_out) == (steps, fan_out)
    assert found.path_queue_s == pytest.approx(0.05 * steps)


def test_a_call_depends_on_the_one_that_its_client_names_rather_than_on_the_last_that_ended() -> None:
    calls = [Call(0, 1, id=b"a"), Call(0, 3, id=b"b"), Call(4, 9, id=b"c", parent=b"a")]
    found = played(calls)
    child = found.calls[2]
    assert (child.before, child.is_named) == (0, True)
    assert [call.id for call in critical_path(found)] == [b"a", b"c"]
    assert [found.path_calls_s, found.path_client_s] == pytest.approx([6, 3])


def test_a_named_call_that_still_runs_counts_until_the_other_began() -> None:
    found = played([Call(0, 10, id=b"a", wait_s=2), Call(4, 12, id=b"b", parent=b"a", wait_s=1)])
    assert found.path_calls_s == pytest.approx(12)
    assert found.path_client_s == 0
    assert found.depth == 2


def test_a_parent_that_the_workflow_does_not_have_is_counted_and_time_decides() -> None:
    tracker = tracker_of()
    play(tracker, [Call(0, 1), Call(2, 3, parent=b"nobody"), Call(0, 1, id=b"other", workflow="x")])
    (found,) = tracker.find("w")
    assert (found.calls[1].before, found.calls[1].is_named) == (0, False)
    assert tracker.snapshot(5.0).unknown_parents == 1


def test_a_workflow_is_described_while_it_runs() -> None:
    tracker = tracker_of()
    calls = [Call(10, 12, wait_s=0.5, id=b"a"), Call(13, 1e6, wait_s=None, id=b"b")]
    play(tracker, calls[:1])
    play(tracker, [Call(12, 12.5, id=b"c", workflow="other")])
    assert tracker.begin(
        calls[1], CallIdentity(workflow_id="w"), client=1, call_id=b"b", lane="short", fingerprint=5
    ) is not None  # fmt: skip
    (found,) = tracker.find("w")
    seen = trace_of(found, now_s=20.0, now=EPOCH)
    assert (seen.verdict, seen.elapsed_s, seen.calls_running) == ("", 10.0, 1)
    assert [seen.replica_s, seen.queue_s, seen.client_s] == pytest.approx([1.5, 7.5, 1])
    last = seen.calls[-1]
    assert (last.request_id, last.ending, last.queue_s, last.is_on_path) == ("b", "", 7.0, True)
    assert seen.replica_s + seen.queue_s + seen.client_s == pytest.approx(seen.elapsed_s)


@given(spans)
def test_what_is_shown_of_one_that_is_over_adds_up(drawn: list[tuple[float, float, float, Ending]]) -> None:
    found = played(calls_of(drawn))
    seen = trace_of(found, now_s=1e9, now=EPOCH)
    assert seen.replica_s + seen.queue_s + seen.client_s == pytest.approx(seen.elapsed_s)
    path = [call for call in seen.calls if call.is_on_path]
    assert sum(call.total_s + call.client_s for call in path) == pytest.approx(seen.elapsed_s)
    assert seen.verdict

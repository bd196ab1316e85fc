"""Which calls are one workflow, how it counts, and what is held at most."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fleetctl.core.slo.endings import Ending
from fleetctl.core.workflows.stats import WorkflowStats
from fleetctl.core.workflows.tracker import CallIdentity, WorkflowLimits
from fleetctl.model.workflow_figures import WorkflowVerdict
from tests.workflows.played import AGENT, SPEC, Call, play, played, tracker_of


def test_calls_of_one_id_and_one_client_are_one_workflow() -> None:
    tracker = tracker_of()
    play(tracker, [Call(0, 1), Call(2, 3), Call(2, 4, workflow="other"), Call(2, 5, client=2)])
    assert [(found.client, found.calls_begun) for found in tracker.find("w")] == [(1, 2), (2, 1)]


def test_two_clients_with_one_id_never_see_each_other() -> None:
    rng = random.Random(4)
    mine, others = (
        [Call(at := rng.uniform(0, 30), at + rng.uniform(0.1, 5), client=client) for _ in range(40)]
        for client in (1, 2)
    )
    together, alone = tracker_of(), tracker_of()
    play(together, [*mine, *others])
    play(alone, [replace(call) for call in mine])
    (seen,) = (found for found in together.find("w") if found.client == 1)
    (expected,) = alone.find("w")
    assert [call.before for call in seen.calls] == [call.before for call in expected.calls]
    assert seen.elapsed_s == expected.elapsed_s
    # Not even by naming a call of the other's.
    stolen = Call(40, 41, client=1, parent=others[0].id)
    play(together, [stolen])
    assert not seen.calls[-1].is_named


def test_a_workflow_is_over_when_none_of_its_calls_ran_for_so_long() -> None:
    tracker = tracker_of()
    play(tracker, [Call(0, 100), Call(150, 151)])
    tracker.sweep(211.0)
    assert tracker.find("w")[0].verdict is None
    tracker.sweep(211.1)
    assert tracker.find("w")[0].verdict is WorkflowVerdict.LATE
    assert tracker.find("w")[0].elapsed_s == 151


def test_an_id_that_comes_again_later_is_another_workflow() -> None:
    tracker = tracker_of()
    play(tracker, [Call(0, 1), Call(62, 63)])
    assert [(found.calls_begun, found.verdict) for found in tracker.find("w")] == [
        (1, WorkflowVerdict.GOOD), (1, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("calls", "verdict"),
    [
        ([Call(0, 1), Call(2, 30)], WorkflowVerdict.GOOD),
        ([Call(0, 1), Call(2, 30.1)], WorkflowVerdict.LATE),
        ([Call(0, 1), Call(2, 3, ending=Ending.ERROR)], WorkflowVerdict.FAILED),
        ([Call(0, 1, ending=Ending.REFUSED, wait_s=None), Call(2, 3)], WorkflowVerdict.FAILED),
        # A repeat asks the same.
        ([Call(0, 1, ending=Ending.REFUSED, body=7), Call(2, 3, body=7)], WorkflowVerdict.GOOD),
        ([Call(0, 1, ending=Ending.TIMEOUT, body=7), Call(2, 3, body=7, ending=Ending.ERROR)], WorkflowVerdict.FAILED),
        # Before, of another, or only half: not repeated.
        ([Call(0, 1, body=7), Call(2, 3, body=7, ending=Ending.INCOMPLETE)], WorkflowVerdict.FAILED),
        ([Call(0, 1, body=7, ending=Ending.ERROR), Call(0, 1, body=8, ending=Ending.ERROR), Call(2, 3, body=7)], WorkflowVerdict.FAILED),
        # What a bound of the server's ended was answered, whatever its lane makes of it.
        ([Call(0, 1, ending=Ending.CAPPED)], WorkflowVerdict.GOOD),
        ([Call(0, 1), Call(2, 3, ending=Ending.CANCELLED)], WorkflowVerdict.CANCELLED),
        ([Call(0, 1), Call(2, 40, ending=Ending.CANCELLED)], WorkflowVerdict.LATE),
        ([Call(0, 1, body=7), Call(0, 2, body=7, ending=Ending.CANCELLED)], WorkflowVerdict.GOOD),
        ([Call(0, 1, ending=Ending.REJECTED)], WorkflowVerdict.CANCELLED),
        ([Call(0, 1, ending=Ending.REJECTED), Call(1, 2)], WorkflowVerdict.GOOD),
    ],
)  # fmt: skip
def test_how_a_workflow_counts(calls: list[Call], verdict: WorkflowVerdict) -> None:
    # The calls are made once for all runs, and a stopwatch is used up by one.
    again = [replace(call) for call in calls]
    assert played(again).verdict is verdict


def test_a_kind_is_named_or_the_lanes_or_none() -> None:
    tracker = tracker_of()
    play(
        tracker,
        [
            Call(0, 40, workflow="by lane"), Call(0, 40, workflow="named", kind="free"),
            Call(0, 40, workflow="unknown", kind="nobody's"), Call(0, 40, workflow="elsewhere", lane="long"),
        ],
    )  # fmt: skip
    tracker.sweep(1e6)
    names = {id_: tracker.find(id_)[0].kind for id_ in ("by lane", "named", "unknown", "elsewhere")}
    assert {id_: kind.name if kind else None for id_, kind in names.items()} == {
        "by lane": "agent", "named": "free", "unknown": None, "elsewhere": None,
    }  # fmt: skip
    counts = {kind.kind: (kind.window(0.0).good, kind.window(0.0).late) for kind in tracker.snapshot(1e6).kinds}
    assert counts == {"agent": (0, 1), "free": (1, 0), "": (2, 0)}


def test_a_single_call_with_a_trace_id_is_no_workflow_unless_its_client_says_so() -> None:
    tracker = tracker_of()
    play(tracker, [Call(0, 1, is_by_trace=True), Call(0, 1, workflow="said")])
    tracker.sweep(100.0)
    seen = tracker.snapshot(100.0)
    assert (seen.singles, sum(kind.window(0.0).ended for kind in seen.kinds)) == (1, 1)
    assert tracker.find("w") == []


def test_the_figures_of_a_kind_are_those_of_its_workflows() -> None:
    tracker = tracker_of()
    for number in range(100):
        begin_s, total_s = number * 2.0, 5.0 + number * 0.3
        play(tracker, [
            Call(begin_s, begin_s + 1, wait_s=0.5, workflow=f"w{number}"),
            Call(begin_s + 2, begin_s + total_s, wait_s=0.5, workflow=f"w{number}"),
        ])  # fmt: skip
    tracker.sweep(400.0)
    window = tracker.snapshot(400.0).kinds[0].window(3600.0)
    assert (window.ended, window.good, window.late, window.failed) == (100, 84, 16, 0)
    assert (window.calls_mean, window.depth_mean, window.fan_out_mean) == (2.0, 2.0, 1.0)
    assert window.queue_share == pytest.approx(100 / sum(5.0 + n * 0.3 for n in range(100)))
    assert window.client_s == pytest.approx(100)
    p50, p99 = window.targets
    assert p50.measured_s == pytest.approx(19.7, rel=0.02)
    assert p99.measured_s == pytest.approx(34.4, rel=0.02)
    assert (p99.samples, p99.over, p99.is_kept) == (100, 16, False)
    later = tracker.snapshot(9000.0)
    assert later.kinds[0].window(3600.0).ended == 0
    assert later.kinds[0].window(0.0).ended == 100


def test_another_profile_keeps_the_figures_of_the_kinds_it_has_and_the_workflows_that_run() -> None:
    tracker = tracker_of()
    play(tracker, [Call(0, 1)])
    tracker.sweep(100.0)
    play(tracker, [Call(100, 101, workflow="later"), Call(100, 101, workflow="gone", kind="free")])
    tracker.apply(replace(SPEC, kinds=(AGENT,), idle_s=5.0), 101.0)
    tracker.sweep(107.0)
    seen = {kind.kind: kind.window(0.0).ended for kind in tracker.snapshot(108.0).kinds}
    assert seen == {"agent": 2, "": 0}
    assert tracker.find("gone")[0].verdict is WorkflowVerdict.GOOD


# What is held at most.


def test_one_trace_id_for_everything_is_no_workflow_and_takes_no_memory() -> None:
    tracker = tracker_of()
    play(tracker, (Call(number / 100, number / 100 + 5, is_by_trace=True) for number in range(30_000)))
    tracker.sweep(1e6)
    seen = tracker.snapshot(1e6)
    found = tracker.find("w")
    assert seen.overgrown >= 1
    assert {each.verdict for each in found} == {WorkflowVerdict.OVERGROWN}
    assert all(each.calls_begun == 10_000 and len(each.calls) == 128 for each in found)
    assert seen.untracked_calls == 30_000 - 10_000 * len(found)
    assert sum(kind.window(0.0).ended for kind in seen.kinds) == 0


def test_a_hundred_thousand_calls_in_one_are_counted_and_few_are_kept() -> None:
    limits = WorkflowLimits(calls_max=200_000)
    found = played((Call(n * 0.001, n * 0.001 + 0.0005, wait_s=0.0001) for n in range(100_000)), limits)
    assert (found.calls_begun, found.depth, len(found.calls)) == (100_000, 100_000, 128)
    assert found.path_queue_s == pytest.approx(10.0)
    assert found.path_calls_s == pytest.approx(50.0)


def test_workflows_that_run_are_bounded_and_the_longest_idle_one_makes_place() -> None:
    limits = WorkflowLimits(running_max=4)
    tracker = tracker_of(limits=limits)
    play(tracker, [Call(n, n + 0.5, workflow=f"w{n}", client=n) for n in range(10)])
    assert sorted(each.id for each in tracker.running()) == ["w6", "w7", "w8", "w9"]
    assert tracker.snapshot(11.0).ended_early == 6
    assert [found.verdict for found in tracker.find("w0")] == [WorkflowVerdict.GOOD]


def test_a_client_with_endless_ids_ends_its_own_workflows_and_nobody_elses() -> None:
    tracker = tracker_of(limits=WorkflowLimits(running_max=8))
    play(tracker, [Call(0, 0.5, workflow="mine", client=7)])
    play(tracker, [Call(1 + n / 100, 1.005 + n / 100, workflow=f"w{n}", client=1) for n in range(500)])
    assert [found.verdict for found in tracker.find("mine")] == [None]
    assert len(list(tracker.running())) == 5


def test_workflows_that_never_end_leave_no_place_for_more_which_is_counted() -> None:
    tracker = tracker_of(limits=WorkflowLimits(running_max=4))
    for number in range(9):
        call = Call(number, 1e9, workflow=f"w{number}", client=number)
        named = CallIdentity(workflow_id=call.workflow)
        tracker.begin(call, named, client=call.client, call_id=call.id, lane="short", fingerprint=0)
    tracker.sweep(1e6)
    assert len(list(tracker.running())) == 4
    assert tracker.snapshot(1e6).untracked_calls == 5


def test_what_is_over_is_bounded_and_misses_are_held_for_longer() -> None:
    limits = WorkflowLimits(ended_max=5, missed_max=3, calls_kept_in_all=40)
    tracker = tracker_of(limits=limits)
    for number in range(200):
        ending = Ending.ERROR if number % 10 == 0 else Ending.COMPLETE
        play(
            tracker,
            [Call(100 * number + k, 100 * number + k + 0.5, ending=ending, workflow=f"w{number}") for k in range(4)],
        )
    tracker.sweep(1e6)
    held = [number for number in range(200) if tracker.find(f"w{number}")]
    assert held == [170, 180, 190, 195, 196, 197, 198, 199]
    # What is forgotten makes place again: the last ones have all of their calls.
    assert len(tracker.find("w199")[0].calls) == 4
    assert tracker.snapshot(1e6).kinds[0].window(0.0).ended == 200


def test_calls_kept_are_bounded_over_all_workflows() -> None:
    tracker = tracker_of(limits=WorkflowLimits(calls_kept_in_all=10))
    play(tracker, [Call(0, 1, workflow=f"w{n}") for n in range(30)])
    assert sum(len(found.calls) for found in tracker.running()) == 10
    assert all(found.calls_begun == 1 for found in tracker.running())


def test_repeats_are_told_apart_up_to_a_bound_and_then_counted_as_failed() -> None:
    failed = [Call(n, n + 0.5, ending=Ending.ERROR, body=n) for n in range(65)]
    repeats = [Call(100 + n * 0.1, 100.05 + n * 0.1, body=n) for n in range(65)]
    limits = WorkflowLimits()
    assert played([*failed[:64], *repeats[:64]], limits).verdict is WorkflowVerdict.LATE  # it took 106 s
    assert played([replace(call) for call in (*failed, *repeats)], limits).verdict is WorkflowVerdict.FAILED


def test_counts_that_leave_a_window_leave_nothing_behind() -> None:
    whole, gone, rest = WorkflowStats(), WorkflowStats(), WorkflowStats()
    gone.add(played([Call(0, 1, wait_s=0.3), Call(2, 40, wait_s=0.3)]), WorkflowVerdict.LATE)
    rest.add(played([Call(0, 1, wait_s=0.1)]), WorkflowVerdict.GOOD)
    whole.merge(gone)
    whole.merge(rest)
    whole.remove([gone], [rest])
    assert whole.window(60.0, AGENT.targets) == rest.window(60.0, AGENT.targets)

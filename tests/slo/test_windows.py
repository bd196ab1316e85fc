"""Sliding windows hold what happened in their length, to within one sub-window."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.slo.lane_stats import LaneStats
from fleetctl.core.slo.windows import SUB_WINDOW_S, WINDOWS_S, SlidingWindows
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric


def windows(now_s: float = 0.0) -> SlidingWindows[LaneStats]:
    return SlidingWindows(LaneStats, now_s=now_s)


def test_a_window_forgets_what_is_older_than_its_length():
    w = windows()
    w.open_cell(0.1).offered += 7
    assert w.over(10.0, 9.0).offered == 7
    assert w.over(10.0, 10.6).offered == 0
    assert w.over(60.0, 50.0).offered == 7
    assert w.over(60.0, 63.0).offered == 0
    assert w.over(3600.0, 3000.0).offered == 7
    assert w.lifetime().offered == 7


@given(
    st.lists(st.floats(min_value=0.0, max_value=30.0), min_size=1, max_size=80),
    st.sampled_from(WINDOWS_S),
)
def test_every_window_counts_between_its_length_and_one_sub_window_less(gaps, seconds):
    w = windows()
    at, stamps = 0.0, []
    for gap in gaps:
        at += gap
        stamps.append(at)
        w.open_cell(at).finished += 1
    counted = w.over(seconds, at).finished
    certain = sum(1 for s in stamps if s > at - seconds + SUB_WINDOW_S[seconds] + 0.5)
    possible = sum(1 for s in stamps if s >= at - seconds - 0.5)
    assert certain <= counted <= possible
    assert w.lifetime().finished == len(stamps)


def test_latencies_merge_over_sub_windows():
    w = windows()
    for i in range(100):
        w.open_cell(i * 0.09).ttft.add(0.001 * (i + 1))
    figures = w.over(10.0, 9.0).window(10.0, LaneSlo(targets=()))
    assert figures.ttft.count == 100
    assert abs(figures.ttft.p50_s - 0.05) < 0.002
    assert figures.ttft.max_s == 0.1


def test_an_idle_year_costs_nothing_and_leaves_nothing():
    w = windows()
    w.open_cell(0.0).good += 1
    assert w.over(3600.0, 365 * 86400.0).good == 0
    assert w.lifetime().good == 1


def test_outcomes_are_counted_by_kind():
    w = windows()
    cell = w.open_cell(1.0)
    cell.breached["ttft"] += 2
    cell.shed["queue-full"] += 1
    w.open_cell(2.0).breached["ttft"] += 1
    figures = w.over(10.0, 3.0).window(10.0, LaneSlo(targets=()))
    assert figures.breached == {"ttft": 3}
    assert figures.shed == {"queue-full": 1}


@given(st.floats(0.0, 100.0), st.floats(0.0, 100.0))
def test_what_is_taken_back_leaves_every_window_as_if_it_had_never_been(at_s, later_s):
    windows = SlidingWindows(LaneStats, now_s=0.0)
    windows.open_cell(at_s).breached["ttft"] += 1
    windows.open_cell(at_s).good += 1
    windows.open_cell(at_s + later_s).good += 1
    change = LaneStats()
    change.breached["ttft"] = -1
    windows.amend(change, at_s)
    for seconds in WINDOWS_S:
        assert sum(windows.over(seconds, at_s + later_s).breached.values()) == 0
        assert all(count == 0 for count in windows.over(seconds, at_s + later_s + 5.0).breached.values())
    assert sum(windows.lifetime().breached.values()) == 0
    assert windows.lifetime().good == 2


@given(
    st.lists(
        st.tuples(st.floats(min_value=0.0, max_value=9.0), st.floats(min_value=1e-4, max_value=30.0), st.booleans()),
        min_size=1,
        max_size=120,
    ),
    st.sampled_from(WINDOWS_S),
    st.booleans(),
)
def test_a_sum_that_is_kept_up_is_the_one_made_anew(events, seconds, is_asked_often):
    slo = LaneSlo(targets=(LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=0.5),))
    kept, at, stamps = windows(), 0.0, []
    for gap_s, value_s, missed in events:
        at += gap_s
        cell = kept.open_cell(at)
        cell.ttft.add(value_s)
        cell.itl.add(value_s / 10, 3)
        cell.offered += 1
        cell.breached["ttft"] += missed
        stamps.append((at, value_s, missed))
        if is_asked_often:
            kept.over(seconds, at)
    # Only those that the window still holds, in one heap.
    whole = kept.over(seconds, at)
    anew = LaneStats()
    held = stamps[len(stamps) - whole.offered :]
    for _, value_s, missed in held:
        anew.ttft.add(value_s)
        anew.itl.add(value_s / 10, 3)
        anew.offered += 1
        anew.breached["ttft"] += missed
    found, expected = whole.window(seconds, slo), anew.window(seconds, slo)
    assert found.ttft == expected.ttft
    assert found.itl == expected.itl
    assert found.targets == expected.targets
    assert found.missed == expected.missed
    assert whole.ttft.sum_s == pytest.approx(anew.ttft.sum_s)

"""The error budget over the objective's window: counted once, whatever restarts, in a bounded number of buckets."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.slo.accounts import LaneAccounts
from fleetctl.core.slo.breach import RequestMeasurements
from fleetctl.core.slo.budget import BUCKETS_MAX, count_requests, error_budget
from fleetctl.core.slo.endings import Ending
from fleetctl.model.budget import BudgetLedger, RequestTotals
from fleetctl.model.profile import Objective
from fleetctl.model.slo import BreachKind, LaneSlo, LatencyTarget, Metric
from fleetctl.testing.samples import EPOCH

if TYPE_CHECKING:
    from datetime import datetime

WEEK = Objective(fraction=0.99, window_s=7 * 86400.0)


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def count(ledger: BudgetLedger | None, good: int, bad: int, now_s: float, started_s: float = 0.0) -> BudgetLedger:
    return count_requests(
        ledger,
        RequestTotals(good=good, bad=bad),
        gateway_started_at=at(started_s),
        now=at(now_s),
        window_s=WEEK.window_s,
    )


# Seconds until the next reading, requests since the last one, and whether the gateway was started anew before them.
readings = st.lists(
    st.tuples(st.floats(1.0, 6 * 86400.0), st.integers(0, 50), st.integers(0, 50), st.booleans()), max_size=30
)


@given(readings)
def test_every_request_of_the_window_is_counted_once_through_gateway_restarts(steps):
    ledger, now_s, started_s, good, bad = None, 10.0, 0.0, 0, 0
    seen: list[tuple[float, int, int]] = []
    for wait_s, more_good, more_bad, restarts in steps:
        now_s += wait_s
        if restarts:
            started_s, good, bad = now_s, 0, 0
        good, bad = good + more_good, bad + more_bad
        seen.append((now_s, more_good, more_bad))
        ledger = count(ledger, good, bad, now_s, started_s)
        assert len(ledger.buckets) <= BUCKETS_MAX + 1
        budget = error_budget(ledger, WEEK, at(now_s))
        bucket_s = WEEK.window_s / BUCKETS_MAX
        for found, column in ((budget.good, 1), (budget.bad, 2)):
            surely = sum(s[column] for s in seen if s[0] > now_s - WEEK.window_s + bucket_s)
            at_most = sum(s[column] for s in seen if s[0] > now_s - WEEK.window_s)
            assert surely <= found <= at_most


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_what_is_left_and_what_was_spent_make_the_whole(good, bad):
    left = error_budget(count(None, good, bad, 60.0), WEEK, at(60.0)).left
    if not good + bad:
        assert left is None
    else:
        assert left == pytest.approx(1.0 - bad / ((good + bad) * 0.01))


def test_more_bad_requests_never_leave_more():
    lefts = [error_budget(count(None, 1000 - bad, bad, 60.0), WEEK, at(60.0)).left for bad in range(0, 1000, 50)]
    assert lefts == sorted(lefts, key=lambda left: -(left or 0.0))
    assert lefts[0] == 1.0


def test_a_young_fleet_says_since_when_it_is_counted():
    ledger = count(None, 0, 0, 100.0)
    assert error_budget(ledger, WEEK, at(3600.0)).since == at(100.0)
    assert error_budget(ledger, WEEK, at(30 * 86400.0)).since == at(23 * 86400.0)


def test_requests_a_gateway_had_before_it_was_first_read_are_counted_since_its_start():
    budget = error_budget(count(None, 10, 0, 500.0, started_s=200.0), WEEK, at(500.0))
    assert (budget.good, budget.since) == (10, at(200.0))


def test_a_lane_that_left_the_table_and_came_back_counts_on():
    ledger = count(count(None, 100, 5, 60.0), 3, 1, 120.0)
    budget = error_budget(ledger, WEEK, at(120.0))
    assert (budget.good, budget.bad) == (103, 6)


def test_a_clock_that_was_set_back_loses_nothing():
    ledger = count(count(None, 100, 5, 7200.0), 110, 6, 60.0)
    budget = error_budget(ledger, WEEK, at(7200.0))
    assert (budget.good, budget.bad) == (110, 6)


def test_refused_and_breached_requests_are_bad_and_those_the_client_gave_up_are_neither():
    slo = LaneSlo(targets=(LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=0.3),))
    accounts = LaneAccounts(slo, now_s=0.0)
    for ending, ttft_s in (
        (Ending.COMPLETE, 0.1),
        (Ending.COMPLETE, 0.5),
        (Ending.ERROR, None),
        (Ending.CANCELLED, 0.1),
    ):
        measured = RequestMeasurements(ending=ending, total_s=1.0, ttft_s=ttft_s)
        accounts.finished(0.0, measured, prompt_tokens=1, output_tokens=0, more_output_tokens=0)
    accounts.missed(0.0, BreachKind.REFUSED)
    assert accounts.totals() == RequestTotals(good=1, bad=3)

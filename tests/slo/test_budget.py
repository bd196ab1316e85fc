"""The error budget over the objective's window: counted once, whatever restarts, in a bounded number of buckets."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from fleetctl.codec import decode, encode
from fleetctl.core.slo.accounts import LaneAccounts
from fleetctl.core.slo.breach import RequestMeasurements
from fleetctl.core.slo.budget import count_gateway, read_budget
from fleetctl.core.slo.burn import BURN_WINDOWS_S
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.ledger import add_totals, begin, kinds_over, shifted_ledger, spans_s
from fleetctl.model.budget import BudgetLedger, HourOfRequests, RequestTotals
from fleetctl.model.profile import Objective
from fleetctl.model.slo import BreachKind, LaneSlo, LatencyTarget, Metric
from fleetctl.testing import samples
from fleetctl.testing.samples import EPOCH

if TYPE_CHECKING:
    from datetime import datetime

WEEK = Objective(fraction=0.99, window_s=7 * 86400.0)


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def reading_of(
    ledger: BudgetLedger | None,
    good: int,
    bad: int,
    now_s: float,
    started_s: float = 0.0,
    *,
    objective: Objective = WEEK,
    kinds: dict[str, int] | None = None,
) -> BudgetLedger:
    """Return the ledger after a gateway that began at `started_s` has said this of its lane."""
    totals = RequestTotals(good=good, bad=bad, kinds=kinds or {})
    started_at, now = at(started_s), at(now_s)
    return add_totals(
        ledger or begin(totals, gateway_started_at=started_at, now=now),
        totals,
        gateway_started_at=started_at,
        now=now,
        window_s=objective.window_s,
        objective=objective.fraction,
    )


# Seconds until the next reading, requests since the last one, and whether the gateway was started anew before them.
readings = st.lists(
    st.tuples(
        st.one_of(st.floats(1.0, 90.0), st.floats(1.0, 6 * 86400.0)),
        st.integers(0, 50),
        st.integers(0, 50),
        st.booleans(),
    ),
    max_size=40,
)


@given(readings, st.sampled_from([3600.0, 86400.0, WEEK.window_s, 30 * 86400.0]))
def test_every_request_of_every_window_is_counted_once_through_gateway_restarts(steps, window_s):
    objective = Objective(fraction=0.99, window_s=window_s)
    ledger, now_s, started_s, good, bad = None, 10.0, 0.0, 0, 0
    seen: list[tuple[float, int, int]] = []
    for wait_s, more_good, more_bad, restarts in steps:
        now_s += wait_s
        if restarts:
            started_s, good, bad = now_s, 0, 0
        good, bad = good + more_good, bad + more_bad
        seen.append((now_s, more_good, more_bad))
        ledger = reading_of(ledger, good, bad, now_s, started_s, objective=objective)
        assert sum(len(tier.buckets) for tier in ledger.tiers) <= 480
        read = read_budget(ledger, objective, at(now_s))
        for length_s in BURN_WINDOWS_S:
            found = read.over(length_s)
            if length_s <= max(window_s, 7 * 86400.0):
                assert_between(seen, now_s, length_s, found.good, found.bad)
        assert_between(seen, now_s, window_s, read.budget.good, read.budget.bad)


def assert_between(seen: list[tuple[float, int, int]], now_s: float, window_s: float, good: int, bad: int) -> None:
    """Hold a window to the raw readings: it begins no earlier than it says, and no later than a bucket after."""
    spans = spans_s(window_s)
    bucket_s = next(width_s for width_s, span_s in spans.items() if span_s >= window_s)
    assert bucket_s / window_s <= (0.034 if window_s in BURN_WINDOWS_S else 0.042)
    for found, column in ((good, 1), (bad, 2)):
        surely = sum(s[column] for s in seen if s[0] >= now_s - window_s + bucket_s)
        at_most = sum(s[column] for s in seen if s[0] > now_s - window_s)
        assert surely <= found <= at_most


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_what_is_left_and_what_was_spent_make_the_whole(good, bad):
    left = read_budget(reading_of(None, good, bad, 60.0), WEEK, at(60.0)).budget.left
    if not good + bad:
        assert left is None
    else:
        assert left == pytest.approx(1.0 - bad / ((good + bad) * 0.01))


def test_more_bad_requests_never_leave_more():
    lefts = [
        read_budget(reading_of(None, 1000 - bad, bad, 60.0), WEEK, at(60.0)).budget.left for bad in range(0, 1000, 50)
    ]
    assert lefts == sorted(lefts, key=lambda left: -(left or 0.0))
    assert lefts[0] == 1.0


def test_a_young_fleet_says_since_when_it_is_counted():
    ledger = reading_of(None, 0, 0, 100.0)
    assert read_budget(ledger, WEEK, at(3600.0)).budget.since == at(100.0)
    assert read_budget(ledger, WEEK, at(30 * 86400.0)).budget.since == at(23 * 86400.0)


def test_requests_a_gateway_had_before_it_was_first_read_are_counted_since_its_start():
    budget = read_budget(reading_of(None, 10, 0, 500.0, started_s=200.0), WEEK, at(500.0)).budget
    assert (budget.good, budget.since) == (10, at(200.0))


def test_a_lane_that_left_the_table_and_came_back_counts_on():
    ledger = reading_of(reading_of(None, 100, 5, 60.0), 3, 1, 120.0)
    budget = read_budget(ledger, WEEK, at(120.0)).budget
    assert (budget.good, budget.bad) == (103, 6)


def test_a_clock_that_went_back_a_little_loses_nothing():
    ledger = reading_of(reading_of(None, 100, 5, 7200.0), 110, 6, 7180.0)
    budget = read_budget(ledger, WEEK, at(7200.0)).budget
    assert (budget.good, budget.bad) == (110, 6)


@given(readings, st.integers(-40, 40).map(lambda days: timedelta(hours=days * 7, seconds=days * 13)))
def test_a_clock_that_was_set_moves_every_request_along(steps, by):
    ledger, now_s, good, bad = reading_of(None, 0, 0, 10.0), 10.0, 0, 0
    for wait_s, more_good, more_bad, _ in steps:
        now_s, good, bad = now_s + wait_s, good + more_good, bad + more_bad
        ledger = reading_of(ledger, good, bad, now_s)
    moved, now = shifted_ledger(ledger, by), at(now_s) + by
    assert moved.gateway_started_at == ledger.gateway_started_at
    for before, after in zip(ledger.tiers, moved.tiers, strict=True):
        assert sum(b.good for b in after.buckets) == sum(b.good for b in before.buckets)
        assert list(after.buckets) == sorted(after.buckets, key=lambda b: b.start_s)
    budget, was = read_budget(moved, WEEK, now).budget, read_budget(ledger, WEEK, at(now_s)).budget
    assert abs(budget.good - was.good) <= max((b.good for b in ledger.tiers[-1].buckets), default=0)


def test_requests_stay_held_against_the_objective_they_were_counted_by():
    strict = Objective(fraction=0.999, window_s=WEEK.window_s)
    ledger = reading_of(None, 990, 10, 60.0)
    assert read_budget(ledger, WEEK, at(60.0)).budget.left == pytest.approx(0.0)
    ledger = reading_of(ledger, 1990, 10, 4000.0, objective=strict)
    after = read_budget(ledger, strict, at(4000.0))
    assert after.budget.left == pytest.approx(1.0 - 10 / (1000 * 0.01 + 1000 * 0.001))
    assert after.over(3600.0).burn == pytest.approx(0.0)


def test_a_window_that_grows_keeps_what_was_counted():
    ledger = reading_of(None, 100, 5, 60.0)
    month = Objective(fraction=0.99, window_s=30 * 86400.0)
    ledger = reading_of(ledger, 100, 5, 3 * 86400.0, objective=month)
    budget = read_budget(ledger, month, at(3 * 86400.0)).budget
    assert (budget.good, budget.bad) == (100, 5)


def test_kinds_of_breach_are_counted_apart():
    ledger = reading_of(None, 90, 3, 60.0, kinds={"ttft": 2, "refused": 1})
    ledger = reading_of(ledger, 95, 5, 90.0, kinds={"ttft": 2, "refused": 2, "error": 1})
    assert kinds_over(ledger, WEEK.window_s, at(90.0)) == {"ttft": 2, "refused": 2, "error": 1}
    assert kinds_over(ledger, 25.0, at(90.0)) == {"refused": 1, "error": 1}


def test_a_ledger_of_hours_alone_is_taken_over():
    hours = tuple(HourOfRequests(start=at(hour * 3600.0 + 17.0), good=99, bad=1) for hour in range(3))
    old = decode(BudgetLedger, encode(BudgetLedger(since=at(0.0), gateway_started_at=at(0.0), buckets=hours)))
    assert read_budget(old, WEEK, at(3 * 3600.0)).budget.left == pytest.approx(0.0)
    ledger = reading_of(old, 50, 0, 3 * 3600.0, started_s=3 * 3600.0)
    budget = read_budget(ledger, WEEK, at(3 * 3600.0)).budget
    assert (budget.good, budget.bad, ledger.buckets) == (347, 3, ())
    assert decode(BudgetLedger, encode(ledger)) == ledger


def test_a_removed_lane_is_kept_until_its_window_has_passed():
    profile = samples.profile()
    ledgers = {"gone": reading_of(None, 5, 1, 60.0), "short": reading_of(None, 7, 0, 60.0)}
    assert set(count_gateway(ledgers, None, profile, at(6 * 86400.0))) == {"gone", "short"}
    assert set(count_gateway(ledgers, None, profile, at(9 * 86400.0))) == {"short"}


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
    assert accounts.totals() == RequestTotals(good=1, bad=3, kinds={"ttft": 1, "error": 1, "refused": 1})

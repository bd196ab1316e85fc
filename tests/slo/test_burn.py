"""Burn rates and the alerts an objective can reach."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.slo.burn import FAST_BURN, burn_rate, window_burn
from fleetctl.model.gateway import LaneSnapshot, LaneWindow
from fleetctl.model.profile import Objective


def test_burn_rate_of_one_spends_exactly_the_budget():
    assert burn_rate(bad=5, total=1000, objective=0.995) == pytest.approx(1.0)


def test_no_requests_have_no_burn_rate():
    assert burn_rate(bad=0, total=0, objective=0.995) is None


@given(st.floats(min_value=0.01, max_value=0.9999), st.integers(1, 10**6))
def test_no_burn_rate_exceeds_the_highest(objective, total):
    rate = burn_rate(bad=total, total=total, objective=objective)
    assert rate is not None
    assert rate == pytest.approx(1 / (1 - objective))


def lane(*, bad_5m: int, bad_1h: int) -> LaneSnapshot:
    windows = tuple(
        LaneWindow(seconds=seconds, good=1000 - bad, breached={"ttft": bad})
        for seconds, bad in ((300.0, bad_5m), (3600.0, bad_1h))
    )
    return LaneSnapshot(name="chat", in_flight=0, queued=0, oldest_wait_s=0.0, windows=windows)


def test_the_page_rate_over_thirty_days_is_the_published_one():
    assert FAST_BURN.rate(Objective(window_s=30 * 86400.0)) == pytest.approx(14.4)


@pytest.mark.parametrize(
    ("bad_5m", "bad_1h", "window_days", "expected"),
    [(80, 80, 30, True), (70, 70, 30, False), (70, 70, 7, True), (10, 80, 30, False), (80, 10, 30, False)],
)
def test_an_alert_needs_both_windows_over_the_rate_of_the_slos_window(bad_5m, bad_1h, window_days, expected):
    objective = Objective(fraction=0.995, window_s=window_days * 86400.0)
    assert FAST_BURN.fires(lane(bad_5m=bad_5m, bad_1h=bad_1h), objective) is expected


def test_an_hour_without_a_request_alerts_nobody():
    empty = LaneSnapshot(name="chat", in_flight=0, queued=0, oldest_wait_s=0.0, windows=())
    assert not FAST_BURN.fires(empty, Objective())


def test_a_refusal_burns_the_budget_like_any_other_miss():
    window = LaneWindow(seconds=300.0, good=97, breached={"ttft": 1, "refused": 2}, shed={"queue-full": 2})
    assert window_burn(window, 0.99) == pytest.approx(3.0)


@pytest.mark.parametrize("objective", [0.0, 1.0, -1.0])
def test_an_objective_without_budget_is_refused(objective):
    with pytest.raises(ValueError, match="objective"):
        burn_rate(bad=1, total=2, objective=objective)

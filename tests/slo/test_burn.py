"""Burn rates, and the rules that alert on them: which windows, at which rate, and at which objectives never."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.slo.burn import BURN_RULES, BURN_WINDOWS_S, FAST_BURN, burn_names, highest_burn
from fleetctl.model.alert import AlertName, AlertSeverity
from fleetctl.model.budget import ErrorBudget, LaneBudget, RequestCount
from fleetctl.model.profile import Objective
from fleetctl.testing.samples import EPOCH

DAY_S = 86400.0
WEEK = Objective(fraction=0.995, window_s=7 * DAY_S)


def reading(
    share: dict[float, float], *, total: int = 10_000, objective: Objective = WEEK, counted_s: float = 7 * DAY_S
) -> LaneBudget:
    """Return a budget whose windows of these lengths hold these shares of bad requests, and the others none."""
    windows = tuple(
        RequestCount(
            window_s=seconds,
            good=total - round(total * share[seconds]),
            bad=round(total * share[seconds]),
            allowed=total * (1.0 - objective.fraction),
        )
        if seconds in share
        else RequestCount(window_s=seconds)
        for seconds in BURN_WINDOWS_S
    )
    budget = ErrorBudget(window_s=objective.window_s, since=EPOCH - timedelta(days=7), good=0, bad=0, left=None)
    return LaneBudget(objective=objective.fraction, budget=budget, windows=windows, counted_s=counted_s)


def test_burn_rate_of_one_spends_exactly_the_budget():
    assert RequestCount(window_s=60.0, good=995, bad=5, allowed=5.0).burn == pytest.approx(1.0)


def test_no_requests_have_no_burn_rate():
    assert RequestCount(window_s=60.0).burn is None
    assert RequestCount(window_s=60.0).attainment is None


@given(st.floats(min_value=0.01, max_value=0.9999), st.integers(1, 10**6))
def test_no_burn_rate_exceeds_the_highest(objective, total):
    count = RequestCount(window_s=60.0, bad=total, allowed=total * (1.0 - objective))
    assert count.burn == pytest.approx(highest_burn(objective))


def test_the_published_rules_spend_the_published_shares_of_thirty_days():
    month = Objective(window_s=30 * DAY_S)
    assert [round(rule.budget_share(month), 3) for rule in BURN_RULES] == [0.02, 0.05, 0.1]
    assert [rule.severity for rule in BURN_RULES] == [AlertSeverity.PAGE, AlertSeverity.TICKET, AlertSeverity.TICKET]


def test_over_seven_days_the_fast_rule_spends_the_budget_in_under_twelve_hours():
    share_an_hour = FAST_BURN.budget_share(WEEK)
    assert share_an_hour == pytest.approx(14.4 / 168)
    assert 1.0 / share_an_hour < 12.0


@pytest.mark.parametrize(
    ("bad_5m", "bad_1h", "expected"),
    [(0.08, 0.08, True), (0.07, 0.08, False), (0.08, 0.07, False), (0.07, 0.07, False)],
)
def test_an_alert_needs_both_windows_over_the_rate(bad_5m, bad_1h, expected):
    assert FAST_BURN.is_over(reading({300.0: bad_5m, 3600.0: bad_1h})) is expected


@pytest.mark.parametrize(("total", "bad", "expected"), [(3, 1, False), (3, 3, True), (20, 3, False), (20, 4, True)])
def test_a_few_bad_requests_alert_only_where_they_cannot_be_chance(total, bad, expected):
    share = {300.0: bad / total, 3600.0: bad / total}
    assert FAST_BURN.is_over(reading(share, total=total)) is expected


def test_a_lane_younger_than_the_short_window_alerts_nobody_yet():
    all_bad = dict.fromkeys(BURN_WINDOWS_S, 1.0)
    young = [rule.name for rule in BURN_RULES if rule.is_over(reading(all_bad, counted_s=1800.0))]
    assert young == [AlertName.FAST_BURN, AlertName.MEDIUM_BURN]
    assert not any(rule.is_over(reading(all_bad, counted_s=299.0)) for rule in BURN_RULES)


def test_an_hour_without_a_request_alerts_nobody():
    assert not any(rule.is_over(reading({})) for rule in BURN_RULES)


@pytest.mark.parametrize(
    ("fraction", "impossible"),
    [
        (0.995, ()),
        (0.931, ()),
        (0.930, (AlertName.FAST_BURN,)),
        (0.9, (AlertName.FAST_BURN,)),
        (0.8, (AlertName.FAST_BURN, AlertName.MEDIUM_BURN)),
    ],
)
def test_a_rule_that_no_outage_can_fire_is_said_so(fraction, impossible):
    objective = Objective(fraction=fraction)
    assert tuple(rule.name for rule in BURN_RULES if rule.never_fires(objective)) == impossible
    all_bad = reading(dict.fromkeys(BURN_WINDOWS_S, 1.0), objective=objective)
    assert tuple(rule.name for rule in BURN_RULES if not rule.is_over(all_bad)) == impossible


def test_a_rule_that_looks_back_further_than_the_objective_is_said_so():
    day = Objective(window_s=DAY_S)
    slow = BURN_RULES[-1]
    assert slow.never_fires(day) == "it looks at 3d, the objective's window is 1d"
    assert not slow.is_over(reading(dict.fromkeys(BURN_WINDOWS_S, 1.0), objective=day))
    assert "a burn of 14.4x is impossible at 0.9: all requests bad is 10x" in FAST_BURN.never_fires(
        Objective(fraction=0.9)
    )


def test_windows_are_named_as_people_call_them():
    named = burn_names(reading(dict.fromkeys(BURN_WINDOWS_S, 0.01)))
    assert list(named) == ["5m", "30m", "1h", "6h", "3d"]
    assert list(named.values()) == pytest.approx([2.0] * 5)

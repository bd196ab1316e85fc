"""Burn rates and the alerts an objective can reach."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.slo.burn import BURN_RULES, burn_rate, highest_burn, unreachable_rules, window_burn
from fleetctl.model.gateway import LaneWindow


def test_burn_rate_of_one_spends_exactly_the_budget():
    assert burn_rate(bad=5, total=1000, objective=0.995) == pytest.approx(1.0)


def test_no_requests_have_no_burn_rate():
    assert burn_rate(bad=0, total=0, objective=0.995) is None


@given(st.floats(min_value=0.01, max_value=0.9999), st.integers(1, 10**6))
def test_no_burn_rate_exceeds_the_highest(objective, total):
    rate = burn_rate(bad=total, total=total, objective=objective)
    assert rate is not None
    assert rate == pytest.approx(highest_burn(objective))


@pytest.mark.parametrize(("objective", "lost"), [(0.995, 0), (0.931, 0), (0.93, 1), (0.8, 2)])
def test_alerts_that_can_never_fire_are_named(objective, lost):
    assert unreachable_rules(objective) == BURN_RULES[:lost]


def test_shed_requests_do_not_burn_the_budget():
    window = LaneWindow(seconds=300.0, good=99, breached={"ttft": 1}, shed={"queue-full": 500})
    assert window_burn(window, 0.99) == pytest.approx(1.0)


@pytest.mark.parametrize("objective", [0.0, 1.0, -1.0])
def test_an_objective_without_budget_is_refused(objective):
    with pytest.raises(ValueError, match="objective"):
        burn_rate(bad=1, total=2, objective=objective)

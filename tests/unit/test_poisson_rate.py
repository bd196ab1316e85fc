from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.poisson_rate import is_telling, rate_interval


@pytest.mark.parametrize(
    ("events", "low", "high"),
    # Garwood's table, 90 %; of none the upper bound is -ln 0.05.
    [
        (0, 0.0, -math.log(0.05)),
        (1, 0.0513, 4.744),
        (2, 0.355, 6.296),
        (5, 1.970, 10.513),
        (20, 13.255, 29.062),
        (400, 367.7, 434.6),
    ],
)
def test_the_bounds_are_those_of_the_table(events, low, high):
    assert list(rate_interval(events, 1.0)) == pytest.approx([low, high], rel=2e-3)


@given(events=st.just(0.0) | st.floats(0.001, 300.0), hours=st.floats(0.01, 1e4))
def test_the_observed_rate_lies_inside_and_more_exposure_narrows_it(events, hours):
    low, high = rate_interval(events, hours)
    assert low <= events / hours <= high
    longer = rate_interval(events * 4, hours * 4)
    assert longer[1] - longer[0] <= high - low


@pytest.mark.parametrize(("events", "telling"), [(0, False), (1, False), (2, False), (3, True), (30, True)])
def test_three_events_tell_a_rate(events, telling):
    assert is_telling(*rate_interval(events, 7.0)) is telling

"""The exact test against its definition."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.slo.binomial import chance_of_at_least, chance_of_at_most


def terms(samples: int, share: float) -> list[float]:
    return [math.comb(samples, k) * share**k * (1 - share) ** (samples - k) for k in range(samples + 1)]


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.001, 0.999))
def test_tails_are_the_sums_of_their_terms(misses, samples, share):
    misses = min(misses, samples)
    all_terms = terms(samples, share)
    assert chance_of_at_least(misses, samples, share) == pytest.approx(sum(all_terms[misses:]), abs=1e-9)
    assert chance_of_at_most(misses, samples, share) == pytest.approx(sum(all_terms[: misses + 1]), abs=1e-9)


@pytest.mark.parametrize(("misses", "share", "chance"), [(0, 0.0, 1.0), (1, 0.0, 0.0), (10, 1.0, 1.0), (3, 1.0, 1.0)])
def test_shares_without_doubt_are_answered_without_doubt(misses, share, chance):
    assert chance_of_at_least(misses, 10, share) == chance


def test_a_million_samples_are_counted_in_no_time():
    assert chance_of_at_least(10_500, 1_000_000, 0.01) < 1e-6
    assert 0.4 < chance_of_at_least(10_000, 1_000_000, 0.01) < 0.6

"""Where the load is going: growth is told from chance and from steps, and how unevenly requests come from a trend."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.core.trend import BIN_S, dispersion, may_rise, mean_rps, note_arrivals, trend
from fleetctl.model.arrivals import ArrivalHistory
from fleetctl.testing.samples import EPOCH

BOOT_S = 120.0


def history(*counts: int) -> ArrivalHistory:
    return ArrivalHistory(counts=counts, until=EPOCH)


def poisson(dice: random.Random, mean: float) -> int:
    """Return how many arrivals of a Poisson stream fall into one bin."""
    found, at = 0, dice.expovariate(1.0)
    while at < mean:
        found, at = found + 1, at + dice.expovariate(1.0)
    return found


def test_counts_are_taken_once_in_ten_seconds_and_forgotten_after_a_gap():
    kept = ArrivalHistory()
    for second in range(60):
        kept = note_arrivals(kept, second, EPOCH + timedelta(seconds=second))
    assert kept.counts == (0, 10, 20, 30, 40, 50)
    assert note_arrivals(kept, 7, EPOCH + timedelta(seconds=100)).counts == (7,)
    assert note_arrivals(kept, 7, EPOCH - timedelta(seconds=100)).counts == (7,)


def test_a_minutes_rate_is_known_after_a_minute():
    assert mean_rps(history(10, 20, 30, 40, 50)) == 0.0
    assert mean_rps(history(900, 10, 20, 30, 40, 50, 60)) == pytest.approx(3.5)


def test_a_sinusoid_on_its_way_up_is_known_before_it_is_there():
    rps = [12.5 - 11.5 * math.cos(2.0 * math.pi * at / 900.0) for at in range(0, 300, 10)]
    counts = [round(BIN_S * each) for each in rps]
    for until in range(16, 20):
        found = trend(history(*counts[:until]), boot_s=100.0)
        assert found is not None
        assert found.ahead_rps == pytest.approx(rps[until - 1 + 10], rel=0.25)


def test_a_rise_is_seen_as_possible_soon_after_the_trough_and_seldom_in_steady_load():
    rps = [12.5 - 11.5 * math.cos(2.0 * math.pi * at / 900.0) for at in range(600, 1100, 10)]
    counts = [round(BIN_S * each) for each in rps]
    looks = {600 + 10 * until: may_rise(history(*counts[until - 8 : until])) for until in range(8, len(counts))}
    assert not any(rises for at_s, rises in looks.items() if at_s <= 900)
    assert all(rises for at_s, rises in looks.items() if at_s >= 970)
    dice = random.Random(5)
    seen = [may_rise(history(*(poisson(dice, 40.0) for _ in range(8)))) for _ in range(2000)]
    assert 0.04 < sum(seen) / len(seen) < 0.10
    assert not may_rise(history(1, 2, 3, 4, 5, 6, 7)), "too short to say"


@pytest.mark.parametrize("at", range(1, 12))
def test_a_step_is_no_trend(at: int) -> None:
    assert trend(history(*[30] * at, *[120] * (12 - at)), boot_s=BOOT_S) is None


@pytest.mark.parametrize(("before", "after"), [(2.0, 4.0), (6.0, 8.0), (4.0, 6.0)])
def test_a_step_of_uneven_counts_is_seldom_taken_for_a_trend(before: float, after: float) -> None:
    dice, seen = random.Random(f"step/{before}/{after}"), 0
    for _ in range(400):
        counts = [poisson(dice, BIN_S * before) for _ in range(20)] + [poisson(dice, BIN_S * after) for _ in range(12)]
        seen += any(trend(history(*counts[:at]), boot_s=BOOT_S) for at in range(20, len(counts) + 1))
    # Without a margin over what a step explains it is one in five of the last two.
    assert seen <= 0.15 * 400


@pytest.mark.parametrize("rps", [0.5, 3.0, 40.0])
def test_a_steady_stream_hardly_ever_rises(rps: float) -> None:
    dice = random.Random(f"steady/{rps}")
    counts = [poisson(dice, BIN_S * rps) for _ in range(3000)]
    found = [trend(history(*counts[at - 30 : at]), boot_s=BOOT_S) for at in range(30, len(counts))]
    # One chance in a hundred a boot; three standard deviations, looked at every ten seconds.
    assert sum(each is not None for each in found) <= 0.01 * len(found)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(min_value=0, max_value=400), min_size=8, max_size=60), st.sampled_from([60.0, 120.0, 600.0])
)
def test_a_trend_only_ever_looks_upwards(counts: list[int], boot_s: float) -> None:
    found = trend(history(*counts), boot_s=boot_s)
    if found is not None:
        assert found.rps <= found.ahead_rps


def test_falling_load_has_no_trend():
    assert trend(history(*range(120, 0, -10)), boot_s=BOOT_S) is None


def test_dispersion_is_one_for_poisson_and_found_for_groups_and_not_for_a_trend_or_a_step():
    dice = random.Random("dispersion")
    single = [poisson(dice, 60.0) for _ in range(30)]
    groups = [10 * poisson(dice, 20.0) for _ in range(30)]
    assert dispersion(history(*single)) == 1.0
    assert 3.0 < dispersion(history(*groups)) < 15.0
    assert dispersion(history(*range(0, 300, 10))) == 1.0
    assert dispersion(history(*[30] * 15, *[120] * 15)) == 1.0
    assert dispersion(history(*groups[:11])) == 1.0  # too few to say


def test_the_wider_the_groups_the_more_uneven():
    found = [
        dispersion(history(*[size * poisson(random.Random(f"{size}/{at}"), 200.0 / size) for at in range(30)]))
        for size in (1, 8, 40)
    ]
    assert all(before < after for before, after in pairwise(found))

"""Arrival rates: noise is no load, a flash is one at once; and the burst memory: a level passes, a burst is kept."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.core.arrivals import arrival_rate, is_improbable
from fleetctl.core.bursts import needed_lately, note_need
from fleetctl.model.bursts import BurstMemory
from tests.reconcile.worlds import at


def counts(rates: list[float], *, seed: int, batch: int = 1) -> list[int]:
    """Return Poisson counts of batches of requests, a second each."""
    dice = random.Random(seed)
    found = []
    for rps in rates:
        left, arrived = 1.0, 0
        while (left := left - dice.expovariate(rps / batch)) > 0:
            arrived += batch
        found.append(arrived)
    return found


def rates_at(seconds: list[int]) -> list[float]:
    """Return the rate read after each second of the second minute on."""
    return [
        arrival_rate(short=sum(seconds[i - 10 : i]), short_s=10, long=sum(seconds[i - 60 : i]), long_s=60).rps
        for i in range(60, len(seconds) + 1)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_the_noise_of_ten_seconds_is_no_load(seed: int) -> None:
    seconds = counts([4.0] * 3600, seed=seed)
    assert max(rates_at(seconds)) < 5.5
    assert max(sum(seconds[i - 10 : i]) / 10 for i in range(10, 3600)) > 6.0


def test_a_flash_is_seen_within_ten_seconds_and_its_end_too():
    seconds = counts([3.0] * 60 + [12.0] * 120 + [3.0] * 60, seed=1)
    found = rates_at(seconds)
    assert max(found[:10]) > 8.0
    assert min(found[120:140]) < 5.0


def test_the_improbable_is_what_poisson_hardly_ever_gives():
    assert not is_improbable(60, 40)
    assert is_improbable(80, 40)
    assert is_improbable(3, 40)
    assert not is_improbable(0, 5)
    assert is_improbable(3, 0)


CALM_S = 120.0


def lived_through(*needs: tuple[float, int]) -> BurstMemory:
    """Return the memory after (until, need) phases, looked at every second."""
    memory, now_s = BurstMemory(), 0
    for until_s, need in needs:
        while now_s < until_s:
            memory = note_need(memory, need, at(now_s), calm=CALM_S)
            now_s += 1
    return memory


def test_a_level_that_lasted_is_kept_for_one_calm():
    memory = lived_through((600, 8), (700, 3))
    assert needed_lately(memory, at(700), CALM_S).need == 8
    assert needed_lately(memory, at(720), CALM_S).need == 3


def test_a_burst_is_kept_for_many_calms_and_for_an_hour_at_most():
    memory = lived_through((600, 2), (700, 8), (800, 2))
    assert needed_lately(memory, at(700 + 1799), CALM_S).need == 8
    assert needed_lately(memory, at(700 + 1800), CALM_S).need == 2
    assert needed_lately(memory, at(700 + 3599), 16 * CALM_S).need == 8
    assert needed_lately(memory, at(700 + 3600), 16 * CALM_S).need == 2


@pytest.mark.parametrize("top", [7, 9])
def test_noise_at_the_top_of_a_level_is_no_burst(top: int) -> None:
    phases = [(600.0, 8), *((600.0 + 10 * n, 8 if n % 2 else top) for n in range(1, 20)), (1000.0, 2)]
    assert needed_lately(lived_through(*phases), at(1000), CALM_S).need == 2


def test_a_smaller_burst_does_not_end_the_memory_of_a_larger_one():
    memory = lived_through((600, 1), (660, 8), (900, 1), (960, 4), (1300, 1))
    assert needed_lately(memory, at(1300), CALM_S).need == 8


def test_a_slope_is_no_burst_however_steep():
    memory = lived_through(*((600 + 30 * n, 10 - n) for n in range(1, 9)), (1100, 2))
    assert needed_lately(memory, at(1100), CALM_S).need == 2


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 40)), min_size=1, max_size=30))
def test_what_is_kept_is_never_below_what_a_calm_needed_nor_above_the_last_hour(phases: list[tuple[int, int]]) -> None:
    memory, now_s, seen = BurstMemory(), 0, []
    for lasts_s, need in phases:
        now_s += lasts_s
        memory = note_need(memory, need, at(now_s), calm=CALM_S)
        seen.append((now_s, need))
    kept = needed_lately(memory, at(now_s), CALM_S).need
    # What was seen at an instant is known to have lasted until the next look.
    assert kept >= max(need for seen_s, need in seen if now_s - seen_s < CALM_S)
    assert kept <= max(need for _, need in seen)
    assert len(memory.peaks) <= 32
    assert len(memory.levels) <= 41


def test_levels_stay_few_however_high_the_need_rises():
    memory = lived_through(*((n + 1.0, n) for n in range(1, 2000)))
    assert len(memory.levels) < 100
    assert memory.levels[-1].need == 1999

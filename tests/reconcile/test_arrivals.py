"""Arrival rates: noise is no load, a flash is one at once, and burstiness is learned."""

from __future__ import annotations

import random

import pytest

from fleetctl.core.arrivals import arrival_rate_rps, is_improbable
from fleetctl.core.bursts import calm_s, dispersion, needed_lately, note_arrivals, note_need
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
        arrival_rate_rps(short=sum(seconds[i - 10 : i]), short_s=10, long=sum(seconds[i - 60 : i]), long_s=60)
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


@pytest.mark.parametrize(("batch", "low", "high"), [(1, 1.0, 1.6), (10, 6.0, 16.0)])
def test_dispersion_is_learned(batch: int, low: float, high: float) -> None:
    seconds = counts([5.0] * 3600, seed=2, batch=batch)
    memory = BurstMemory()
    for now_s in range(10, 3600):
        memory = note_arrivals(memory, sum(seconds[now_s - 10 : now_s]), at(now_s), planned_cv=1.0)
    assert low <= dispersion(memory) <= high


def test_a_step_to_another_rate_is_no_burstiness():
    seconds = counts([2.0] * 900 + [8.0] * 900, seed=3)
    memory = BurstMemory()
    for now_s in range(10, 1800):
        memory = note_arrivals(memory, sum(seconds[now_s - 10 : now_s]), at(now_s), planned_cv=1.0)
    assert dispersion(memory) < 2.0


def test_what_the_plan_knows_of_bursts_holds_until_enough_was_seen():
    memory = note_arrivals(BurstMemory(), 30, at(0), planned_cv=4.0)
    assert dispersion(memory) == pytest.approx(16.0)
    assert calm_s(memory, shortest_s=120.0) == pytest.approx(1920.0)


def test_the_most_that_was_needed_lately_is_remembered_for_each_length_of_time():
    memory = BurstMemory()
    for now_s, need in ((0, 8), (100, 3), (200, 5), (300, 2)):
        memory = note_need(memory, need, at(now_s))
    assert [needed_lately(memory, at(300), s).need for s in (50, 150, 250, 350)] == [2, 5, 5, 8]
    assert [p.need for p in memory.peaks] == [8, 5, 2]
    assert [p.need for p in note_need(memory, 1, at(3600)).peaks] == [5, 2, 1]

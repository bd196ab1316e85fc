"""How bursty a lane's arrivals have been lately, by the second, of one gateway or of several."""

from __future__ import annotations

import random

import pytest

from fleetctl.core.dispersion import RECENT_S, RecentArrivals, index_of_dispersion, recent_burst, summed_counts
from fleetctl.load.bursts import burst_times_s
from fleetctl.model.traffic import ArrivalBurst, Dispersion
from fleetctl.views.bursts import measured_line


def _counted(times_s: list[float], *, begun_s: float, now_s: float) -> tuple[int, ...]:
    arrivals = RecentArrivals(begun_s)
    for at_s in times_s:
        arrivals.add(at_s)
    return arrivals.counts(now_s)


def test_whole_seconds_are_counted_as_far_back_as_five_minutes() -> None:
    rng = random.Random(11)
    for _ in range(50):
        begun_s = rng.uniform(0, 50)
        now_s = begun_s + rng.choice((0.2, 5.0, 90.0, 301.0, 2000.0))
        idle = (rng.uniform(begun_s, now_s), rng.uniform(begun_s, now_s))
        times = sorted(rng.uniform(begun_s, now_s) for _ in range(400))
        times = [at for at in times if not min(idle) <= at <= max(idle)]
        whole = range(max(int(begun_s) + 1, int(now_s) - RECENT_S), int(now_s))
        wanted = tuple(sum(int(at) == second for at in times) for second in whole)
        assert _counted(times, begun_s=begun_s, now_s=now_s) == wanted


def test_the_index_is_that_of_the_arrivals_themselves() -> None:
    rng = random.Random(4)
    times: list[float] = []
    for at_s in burst_times_s(20, dispersion_1s=4, dispersion_10s=9, rng=rng):
        if at_s >= RECENT_S:
            break
        times.append(1000.0 + at_s)
    burst = recent_burst(_counted(times, begun_s=900.0, now_s=1000.0 + RECENT_S))
    stretch = [(1000.0, 1000.0 + RECENT_S, times)]
    assert burst.seconds == RECENT_S
    assert burst.measured.over_1s == pytest.approx(index_of_dispersion(stretch, 1.0))
    assert burst.measured.over_10s == pytest.approx(index_of_dispersion(stretch, 10.0))


def test_several_gateways_count_together_what_one_would() -> None:
    rng = random.Random(6)
    times = sorted(rng.uniform(0, 200) for _ in range(900))
    of = [rng.randrange(3) for _ in times]
    parts = [
        _counted([at for at, own in zip(times, of, strict=True) if own == number], begun_s=-1.0, now_s=200.0)
        for number in range(3)
    ]
    assert summed_counts(parts) == _counted(times, begun_s=-1.0, now_s=200.0)
    young = _counted([at for at in times if at > 150], begun_s=149.0, now_s=200.0)
    assert summed_counts([parts[0], young])[:149] == parts[0][:149]


def test_few_arrivals_say_nothing() -> None:
    assert recent_burst((0,) * 200).measured == Dispersion(over_1s=None, over_10s=None)
    assert recent_burst((3,) * 9).measured == Dispersion(over_1s=None, over_10s=None)
    assert measured_line(recent_burst((0,) * 200)) == ""
    assert measured_line(None) == ""


def test_that_nobody_came_before_or_since_is_no_burst() -> None:
    rng = random.Random(8)
    counts = (1, *(rng.randint(0, 6) for _ in range(98)), 1)
    assert recent_burst((0,) * 120 + counts + (0,) * 60) == recent_burst(counts)
    assert recent_burst(counts).seconds == 100


def test_what_is_measured_stands_beside_what_is_planned() -> None:
    measured, planned = Dispersion(over_1s=6.4, over_10s=14.1), Dispersion(over_1s=2.0, over_10s=2.0)
    burst = ArrivalBurst(measured=measured, planned=planned, seconds=300, exceeds_plan=True)
    assert measured_line(burst) == (
        "index of dispersion 6.4 over 1 s (planned for 2.0), 14.1 over 10 s (planned for 2.0), of the last 5m; "
        "surely burstier than planned"
    )

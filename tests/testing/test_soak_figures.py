"""A slope is found among odd samples, and a process that was restarted is no leak."""

from __future__ import annotations

import pytest

from tests.bench.soak_figures import Bound, Sample, rows, slope_per_minute

MINUTES = [minute * 60.0 for minute in range(20)]


def test_a_steady_leak_is_its_slope_whatever_a_few_samples_say() -> None:
    points = [("1", at_s, 50.0 + at_s / 60.0 * 0.7) for at_s in MINUTES]
    points[7] = ("1", MINUTES[7], 400.0)
    assert slope_per_minute(points) == pytest.approx(0.7, abs=0.02)


def test_a_new_process_that_is_larger_than_the_last_is_no_growth() -> None:
    points = [("1", at_s, 50.0) for at_s in MINUTES[:10]] + [("2", at_s, 90.0) for at_s in MINUTES[10:]]
    assert slope_per_minute(points) == 0.0


def test_too_few_samples_say_nothing() -> None:
    assert slope_per_minute([("1", 0.0, 1.0), ("1", 120.0, 9.0)]) is None


def test_a_row_fails_over_its_bound_and_only_after_the_start() -> None:
    samples = [
        Sample(at_s=at_s, role="gateway", source="1", figure="threads", reading=1.0 if at_s < 600 else at_s / 60.0)
        for at_s in MINUTES
    ]
    (row,) = rows(samples, {("gateway", "threads"): Bound(per_minute_max=0.2)}, from_s=600.0)
    assert (row.first, row.last, row.is_kept) == (10.0, 19.0, False)
    (row,) = rows(samples, {}, from_s=0.0)
    assert row.is_kept

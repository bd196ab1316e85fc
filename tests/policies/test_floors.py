"""What the floors of the hard cases stand on: a count that rises as the load does, and falls a calm later."""

from __future__ import annotations

from tests.bench.policies.floors import InformedPolicy, staircase_counts

_CALM_S = 120.0


def test_an_informed_count_rises_at_once_and_falls_after_the_calm() -> None:
    policy = InformedPolicy("all", staircase_counts(4, 6, 7, 8))
    assert [policy.wanted(at_s, calm_s=_CALM_S) for at_s in (0, 329, 330, 690, 1050, 1410)] == [3, 3, 4, 6, 7, 8]
    assert [policy.wanted(at_s, calm_s=_CALM_S) for at_s in (1770, 1889, 1890)] == [8, 8, 3]

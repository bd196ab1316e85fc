"""A tier may be promised more than its lane: what the plan does not forecast to keep, it says."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from fleetctl.model.tiers import TierSpec
from fleetctl.units import format_duration
from tests.plan.profiles import planned, profile_with


def cautions(metric: Metric, limit_s: float) -> tuple[str, ...]:
    target = LatencyTarget(metric=metric, percentile=0.99, limit_s=limit_s)
    tiers = (TierSpec(name="premium", slo=LaneSlo(targets=(target,))), TierSpec(name="free"))
    return planned(replace(profile_with(), tiers=tiers)).cautions


def test_a_promise_to_a_tier_that_the_lane_keeps_is_no_news() -> None:
    assert cautions(Metric.TTFT, 0.45) == ()


def test_a_promise_to_a_tier_below_the_forecast_of_its_lane_is_named_with_both() -> None:
    (caution,) = cautions(Metric.TTFT, 0.05)
    assert "tier premium is promised TTFT P99 <= 50ms in lane all" in caution
    forecast = planned(profile_with()).lanes[0].forecast
    assert f"forecast to take {format_duration(forecast.ttft_p99_s)}" in caution


def test_a_metric_that_the_lane_does_not_promise_is_not_held_against_a_tier() -> None:
    assert cautions(Metric.QUEUE_WAIT, 0.000001) == ()

"""The published tables, figure by figure, and the caution beside them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.plan.prefill_only import (
    INTERFERENCE,
    TTFT_FLOOR_S,
    concurrency_within,
    instances_needed,
    mean_queue_wait_s,
    monthly_usd,
    published_fleet,
    published_interference,
    queue_wait_s,
    ttft_ceiling,
)
from fleetctl.errors import InfeasiblePlanError
from fleetctl.model.plan import Constraint, Plan, Sizing
from tests.plan.profiles import OFFERINGS, planned, profile_with

if TYPE_CHECKING:
    from fleetctl.model.profile import Profile

# TTFT P99, utilisation, instances, USD a month at $1.69 and 720 hours.
TABLE = [
    (0.2, 0.55, 73, 88_826),
    (0.3, 0.63, 64, 77_875),
    (0.4, 0.70, 58, 70_574),
    (0.5, 0.75, 54, 65_707),
]


def published(ttft: str, gpus: str = "H100", spot: str = "none") -> Profile:
    """70B FP8, 512-token prompts, 1,000 requests a second."""
    return profile_with(
        model="meta-llama/Llama-3.1-70B-Instruct", precision="fp8", kv="fp8", rps=1000, prompt=(512, 512),
        output=(256, 256), slo=f"ttft: {{p99: {ttft}}}", gpus=gpus, spot=spot,
    )  # fmt: skip


def by_rule(ttft: str) -> Plan:
    return planned(published(ttft), sizing=Sizing.PREFILL_ONLY, service_time_s=0.040, price_usd_per_hour=1.69)


@pytest.mark.parametrize(("ttft_s", "utilisation", "instances", "usd"), TABLE)
def test_published_rows_come_out_exactly(ttft_s: float, utilisation: float, instances: int, usd: int) -> None:
    assert ttft_ceiling(ttft_s) == pytest.approx(utilisation)
    needed = instances_needed(1000, service_time_s=0.040, utilisation=ttft_ceiling(ttft_s))
    assert needed == instances
    assert round(monthly_usd(needed, 1.69)) == usd


@pytest.mark.parametrize(("ttft_s", "utilisation", "instances", "usd"), TABLE)
def test_a_plan_by_the_rule_is_the_published_row(ttft_s: float, utilisation: float, instances: int, usd: int) -> None:
    plan = by_rule(f"{ttft_s * 1000:.0f}ms")
    lane = plan.lanes[0]
    assert plan.sizing is Sizing.PREFILL_ONLY
    assert (lane.replicas, lane.gpu, lane.constraint) == (instances, "H100", Constraint.UTILISATION)
    assert round(plan.cost_usd_per_hour * 720) == usd
    assert lane.forecast.utilisation <= utilisation


@pytest.mark.parametrize(("ttft_s", "utilisation", "instances", "usd"), TABLE)
def test_spot_adds_none_to_the_published_count(ttft_s: float, utilisation: float, instances: int, usd: int) -> None:
    profile = published(f"{ttft_s * 1000:.0f}ms", spot="burst")
    plan = planned(profile, sizing=Sizing.PREFILL_ONLY, service_time_s=0.040, price_usd_per_hour=1.69)
    lane = plan.lanes[0]
    assert lane.spot > 0
    assert (lane.replicas, round(plan.cost_usd_per_hour * 720)) == (instances, usd)
    assert lane.forecast.utilisation <= utilisation


def test_the_published_fleet_of_sixty_costs_73008_a_month() -> None:
    assert published_fleet(58) == 60
    assert round(monthly_usd(60, 1.69)) == 73_008


def test_the_published_h200_row_comes_out_exactly() -> None:
    # 27 rps each at the 400 ms ceiling of 0.70.
    needed = instances_needed(1000, service_time_s=0.70 / 27, utilisation=0.70)
    assert (needed, published_fleet(needed)) == (38, 40)
    assert round(monthly_usd(40, 1.89)) == 54_432
    plan = planned(
        published("400ms", gpus="H200"), sizing=Sizing.PREFILL_ONLY, service_time_s=0.70 / 27, price_usd_per_hour=1.89
    )
    assert plan.lanes[0].replicas == 38


def test_littles_law_wait_at_forty_milliseconds_and_seventy_percent_is_93_ms() -> None:
    assert round(mean_queue_wait_s(0.040, 0.70) * 1000) == 93


@pytest.mark.parametrize(
    ("concurrency", "p50_ms", "p99_ms"), [(8, 45, 90), (16, 52, 160), (32, 68, 280), (64, 95, 480)]
)
def test_published_interference_comes_out_exactly(concurrency: int, p50_ms: int, p99_ms: int) -> None:
    assert published_interference(concurrency) == pytest.approx((p50_ms / 1e3, p99_ms / 1e3))
    assert concurrency_within(p99_ms / 1e3) == concurrency


def test_interference_is_held_at_its_ends_and_rises_between() -> None:
    assert published_interference(1) == INTERFERENCE[0][1:]
    assert published_interference(500) == INTERFERENCE[-1][1:]
    tails = [published_interference(c)[1] for c in range(8, 65)]
    assert tails == sorted(tails)
    assert concurrency_within(0.3) in range(32, 64)


def test_the_caution_counts_what_the_rule_leaves_out() -> None:
    (caution,) = by_rule("400ms").cautions
    assert "no decode time, KV memory, interference or tail" in caution
    # 0.70 / 40 ms = 17.5 rps of 256 tokens each.
    assert "17.5 rps" in caution
    assert "4,480 output tokens/s" in caution
    assert "--sizing full" in caution


def test_the_full_model_asks_for_several_times_as_many() -> None:
    rule, full = by_rule("400ms").lanes[0], planned(published("400ms")).lanes[0]
    rule_gpus = rule.replicas * rule.tensor_parallel
    assert full.replicas * full.tensor_parallel > 3 * rule_gpus


def test_without_a_given_service_time_it_is_the_models_own_prefill() -> None:
    lane = planned(published("400ms"), sizing=Sizing.PREFILL_ONLY).lanes[0]
    # 512 tokens take 55 ms in kernels alone, not 40: up to three quarters as many again.
    assert lane.tensor_parallel == 1
    assert 58 * 55 / 40 < lane.replicas < 58 * 75 / 40


def test_a_promise_the_full_model_cannot_keep_is_said_in_the_caution() -> None:
    profile = profile_with(slo="ttft: {p99: 20ms}")
    with pytest.raises(InfeasiblePlanError):
        planned(profile)
    (caution,) = planned(profile, sizing=Sizing.PREFILL_ONLY).cautions
    assert "no number of L40S keeps" in caution


@pytest.mark.parametrize(
    ("gpus", "service_time_s", "price", "fleet", "usd"),
    [("H100", 0.040, 1.69, 60, 73_008), ("H200", 0.70 / 27, 1.89, 40, 54_432)],
)
@pytest.mark.parametrize("spot", ["none", "burst"])
def test_published_fleets_come_out_where_it_is_rounded_up_to_tens(
    gpus: str, service_time_s: float, price: float, fleet: int, usd: int, spot: str
) -> None:
    plan = planned(
        published("400ms", gpus=gpus, spot=spot), sizing=Sizing.PREFILL_ONLY, service_time_s=service_time_s,
        price_usd_per_hour=price, round_up=10,
    )  # fmt: skip
    assert (plan.lanes[0].replicas, round(plan.cost_usd_per_hour * 720)) == (fleet, usd)
    assert any(f"rounded up to {fleet}" in reason for reason in plan.lanes[0].reasons)


def test_an_instance_is_one_gpu_of_a_machine_that_has_eight() -> None:
    eight = tuple(replace(each, gpu_count=8, is_shareable=False) for each in OFFERINGS if each.gpu == "H200")
    plan = planned(
        published("400ms", gpus="H200"), sizing=Sizing.PREFILL_ONLY, service_time_s=0.70 / 27, price_usd_per_hour=1.89,
        offerings=eight,
    )  # fmt: skip
    assert (plan.lanes[0].replicas, plan.lanes[0].tensor_parallel, plan.lanes[0].nodes) == (38, 1, 5)
    assert plan.cost_usd_per_hour == pytest.approx(38 * 1.89)


def test_what_it_forecasts_is_its_own_queues_and_not_what_is_promised() -> None:
    load, service_s = 1000 / 58 * 0.040, 0.040
    wait_s = queue_wait_s(service_s, load, 0.99)
    # P(W > t) = rho exp(-(1 - rho) t / S)
    assert load * math.exp(-(1 - load) * wait_s / service_s) == pytest.approx(0.01)
    lane = by_rule("400ms").lanes[0]
    assert lane.forecast.ttft_p99_s == pytest.approx(wait_s + service_s + TTFT_FLOOR_S)
    assert lane.forecast.ttft_p99_s > 0.4
    (caution,) = by_rule("400ms").cautions
    assert "400ms is promised" in caution
    # Of exponential waits the mean is that of Little's law.
    steps = [queue_wait_s(service_s, load, (n + 0.5) / 20_000) for n in range(20_000)]
    assert math.fsum(steps) / len(steps) == pytest.approx(mean_queue_wait_s(service_s, load), rel=0.01)

"""KV caches are sized for the peak: the forecast share of preempted requests stays under the published rate, and is printed."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.plan.kv_overflow import OVERFLOW_MAX, KvOverflow
from fleetctl.core.plan.workload import LaneDemand, Lengths
from fleetctl.model.plan import Constraint
from tests.plan.profiles import only_lane, profile_with

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import Profile


def demand(prompt: float, output: float, *, sigma: float = 1.0, seed: int = 1) -> LaneDemand:
    rng = random.Random(seed)
    prompts, outputs = (
        Lengths(points=tuple(sorted(mean * rng.lognormvariate(0.0, sigma) for _ in range(160))))
        for mean in (prompt, output)
    )
    return LaneDemand(
        rps=1.0, prompt=prompts, output=outputs, prefix_hit=0.0, burst_cv=1.0, average_rps=0.6, source="a test"
    )


def simulated(lane: LaneDemand, running: float, kv_tokens: float, *, samples: int = 20_000) -> float:
    """Return how often a Poisson number of sequences, each at a random instant of its answer, holds more."""
    rng, over = random.Random(7), 0
    outputs = lane.output.points
    for _ in range(samples):
        held, at = 0.0, rng.expovariate(1.0)
        while at < running:
            [answer] = rng.choices(outputs, weights=outputs)
            held += rng.choice(lane.prompt.points) + rng.random() * answer
            at += rng.expovariate(1.0)
        over += held > kv_tokens
    return over / samples


@pytest.mark.parametrize("running", [3.0, 20.0])
@pytest.mark.parametrize("times", [1.2, 2.0, 3.0])
def test_the_bound_is_never_below_what_a_simulation_finds_nor_far_above(running: float, times: float) -> None:
    lane = demand(800.0, 200.0)
    mean = running * (lane.prompt.mean + lane.output.second_moment / (2 * lane.output.mean))
    found, bound = simulated(lane, running, times * mean, samples=4000), KvOverflow(lane).chance(running, times * mean)
    assert bound >= found - 3 * math.sqrt(max(found, 1 / 4000) / 4000)
    assert found < 0.002 or bound <= 40 * found


@given(running=st.floats(0.0, 300.0), more=st.floats(1.0, 3.0), kv_tokens=st.floats(1_000.0, 500_000.0))
def test_it_is_a_chance_that_falls_with_the_cache_and_rises_with_the_load(
    running: float, more: float, kv_tokens: float
) -> None:
    overflow = KvOverflow(demand(800.0, 200.0))
    chance = overflow.chance(running, kv_tokens)
    assert 0.0 <= chance <= 1.0
    assert overflow.chance(running, more * kv_tokens) <= chance <= overflow.chance(more * running, kv_tokens)


PEAKY = profile_with(
    rps=6, prompt=(4000, 30_000), output=(400, 2000), slo="ttft: {p99: 30s}, itl: {p99: 400ms}", gpus="L40S"
)


def forecast(lane: LanePlan) -> float:
    """Return the share of requests that a lane's plan says will be preempted."""
    [words] = [reason for reason in lane.reasons if reason.startswith("forecast evictions: at most ")]
    return float(words.removeprefix("forecast evictions: at most ").partition("%")[0]) / 100


@pytest.mark.parametrize("profile", [PEAKY, profile_with(), profile_with(rps=200)], ids=["peaky", "chat", "busy"])
def test_a_plan_says_its_forecast_and_keeps_the_rate(profile: Profile) -> None:
    assert forecast(only_lane(profile)) <= OVERFLOW_MAX


def test_a_cache_that_holds_the_mean_and_not_the_peak_asks_for_more_replicas() -> None:
    lane = only_lane(PEAKY)
    assert lane.constraint is Constraint.KV_MEMORY
    assert "would need more KV cache than there is in up to " in lane.reasons[0]
    [memory] = [reason for reason in lane.reasons if reason.startswith("KV cache holds ")]
    held, needed = (int(memory.split()[at].replace(",", "")) for at in (3, -1))
    assert needed < held / 3, "on average there is room three times over"


def test_the_rate_follows_the_lengths_of_prompts_and_not_their_mean_alone() -> None:
    even, uneven = (KvOverflow(demand(2000.0, 300.0, sigma=sigma)) for sigma in (0.1, 1.5))
    mean = demand(2000.0, 300.0, sigma=1.5)
    cache = 3.0 * 10 * (mean.prompt.mean + mean.output.second_moment / (2 * mean.output.mean))
    assert uneven.chance(10.0, cache) > even.chance(10.0, cache)

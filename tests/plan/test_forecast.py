"""The closed forms against an iteration-by-iteration replay of the same lane."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.perf.step import step_model
from fleetctl.core.plan.checks import OperatingPoint, evaluate
from fleetctl.core.plan.replica import OVERHEAD_S, ReplicaModel
from fleetctl.core.plan.workload import LaneDemand, lane_demands
from fleetctl.model.catalogue import Precision
from fleetctl.model.slo import Metric
from tests.plan.profiles import CATALOGUE, only_lane, profile_with
from tests.plan.replay import Served, replay

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan

CASES = {
    "short prompts, one L40S": ((300, 3000), (120, 600), 1, 512, 128, "L40S"),
    "conversation, four L40S": ((1020, 4142), (129, 601), 4, 1024, 100, "L40S"),
    "retrieval, two H100": ((3000, 7500), (180, 600), 2, 2048, 120, "H100"),
    "long answers, three H100": ((200, 2000), (300, 2000), 3, 2048, 200, "H100"),
}


def lane(case: str, load: float) -> OperatingPoint:
    prompt, output, replicas, chunk, seqs, gpu = CASES[case]
    demand = lane_demands(profile_with(prompt=prompt, output=output))["all"]
    step = step_model(
        CATALOGUE.models["meta-llama/Llama-3.1-8B-Instruct"], CATALOGUE.gpus[gpu],
        tensor_parallel=1, precision=Precision.BF16, kv_precision=Precision.BF16,
    )  # fmt: skip
    model = ReplicaModel(step=step, demand=demand, batched_tokens_max=chunk, seqs_max=seqs)
    loaded = replace(demand, rps=replicas * model.knee_rps * load)
    state = evaluate(replace(model, demand=loaded), replicas)
    assert state is not None
    return state


def arrivals(demand: LaneDemand, count: int) -> list[Served]:
    """Return Poisson arrivals whose mean rate and lengths are the demand's own: near the knee 2 % more is another load."""
    rng = random.Random(11)
    gaps = [rng.expovariate(1.0) for _ in range(count)]
    scale = count / demand.rps / sum(gaps)
    columns = [list(itertools.islice(itertools.cycle(d.points), count)) for d in (demand.prompt, demand.output)]
    for column in columns:
        rng.shuffle(column)
    times = itertools.accumulate(gap * scale for gap in gaps)
    return [Served(at, max(1, round(p)), max(1, round(o))) for at, p, o in zip(times, *columns, strict=True)]


def quantile(values: list[float], fraction: float) -> float:
    return sorted(values)[math.ceil(fraction * len(values)) - 1]


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("case", CASES)
def test_forecast_agrees_with_an_exact_replay(case: str, load: float) -> None:
    forecast = lane(case, load)
    model = forecast.replica
    served = arrivals(model.demand, 2400)
    gaps_s = replay(
        model.step, served, replicas=forecast.replicas, seqs_max=model.seqs_max,
        batched_tokens_max=model.batched_tokens_max,
    )  # fmt: skip
    steady = served[200:-100]
    ttft_s = [OVERHEAD_S + r.ttft_s for r in steady]
    e2e_s = [OVERHEAD_S + r.last_s - r.arrival_s for r in steady]
    assert forecast.ttft.quantile_s(0.5) == pytest.approx(quantile(ttft_s, 0.5), rel=0.12)
    # One or two replicas near their knee: slow swings of the batch lengthen the tail by up to a quarter.
    assert forecast.ttft.quantile_s(0.99) == pytest.approx(quantile(ttft_s, 0.99), rel=0.20 if load < 0.7 else 0.35)
    assert forecast.state.step_s == pytest.approx(statistics.mean(r.tpot_s for r in steady), rel=0.08)
    assert forecast.measure_s(Metric.ITL, 0.99) == pytest.approx(quantile(gaps_s, 0.99), rel=0.20)
    assert forecast.e2e_s(0.99) == pytest.approx(quantile(e2e_s, 0.99), rel=0.20)


@pytest.mark.parametrize("case", CASES)
def test_knee_is_where_a_flooded_replay_stops_gaining(case: str) -> None:
    model = lane(case, 0.5).replica
    flooded = arrivals(replace(model.demand, rps=5 * model.knee_rps), 1600)
    replay(model.step, flooded, seqs_max=model.seqs_max, batched_tokens_max=model.batched_tokens_max)
    done_s = sorted(r.last_s for r in flooded)
    # Between filling up and running dry.
    throughput_rps = 0.5 * len(flooded) / (done_s[int(0.75 * len(done_s))] - done_s[int(0.25 * len(done_s))])
    # The knee keeps a seat free 99 times in 100; a flood uses every one.
    assert 0.75 * throughput_rps <= model.knee_rps <= 1.15 * throughput_rps


def test_past_the_knee_there_is_no_steady_state() -> None:
    model = lane("retrieval, two H100", 0.5).replica
    assert evaluate(replace(model, demand=replace(model.demand, rps=2.1 * model.knee_rps)), 2) is None


def test_bursts_lengthen_the_tail_but_not_the_median_of_an_idle_lane() -> None:
    calm = lane("conversation, four L40S", 0.8)
    model = replace(calm.replica, demand=replace(calm.replica.demand, burst_cv=3.0))
    bursty = evaluate(model, calm.replicas)
    assert bursty is not None
    assert bursty.ttft.quantile_s(0.99) > 1.1 * calm.ttft.quantile_s(0.99)


def test_a_gpu_without_measured_shares_says_so_and_has_wider_intervals() -> None:
    measured, unmeasured = (only_lane(profile_with(gpus=gpu, rps=1, slo="ttft: {p99: 9s}")) for gpu in ("H200", "A10G"))

    def width(lane: LanePlan) -> tuple[float, float]:
        found = lane.forecast
        return found.ttft_p99_high_s / found.ttft_p99_s, found.itl_p99_high_s / found.itl_p99_s

    assert all(wide > narrow for wide, narrow in zip(width(unmeasured), width(measured), strict=True))
    assert any("no measured shares of A10G" in reason for reason in unmeasured.reasons)
    assert not any("measured shares" in reason for reason in measured.reasons)

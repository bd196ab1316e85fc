"""A plan is proven: simulated under the load that it is for, with as few replicas as keep it."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

import pytest

from fleetctl import os_signals
from fleetctl.catalogue.known import resolve_model
from fleetctl.config.profile import parse_profile
from fleetctl.core.dispersion import index_of_dispersion
from fleetctl.core.plan import FleetSearch, TracedRequest, search_fleet
from fleetctl.core.plan.evidence import clumping, missed_upper, tail_estimate
from fleetctl.errors import InfeasiblePlanError
from fleetctl.load.bursts import burst_times_s
from fleetctl.operations.breaking_burst import bursty
from fleetctl.operations.planning import NO_PROOF, plan_profile
from fleetctl.operations.proof_load import proof_load
from fleetctl.operations.proving import Laboratory, prove
from fleetctl.testing import samples
from tests.plan.profiles import CATALOGUE, OFFERINGS

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan
    from fleetctl.operations.site import Site

_TEXT = """
apiVersion: fleetctl/v1
name: proven
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: fp8}}
engine: {engine}
provider: local
workload:
  peak_rps: {rps}
  prompt_tokens: {{p50: 800, p99: 3000}}
  output_tokens: {{p50: 60, p99: 200}}
  {burst}
lanes:
  all: {{slo: {{ttft: {{p99: {ttft}}}, itl: {{p99: {itl}}}}}, max_wait: 1s, spot: none, replicas: {{min: {least}, max: {most}}}, launch: {{{launch}}}}}
capacity: {{gpus: [L40S], max_nodes: 200}}
"""
_TWO_LANES = """
apiVersion: fleetctl/v1
name: two
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: fp8}
engine: emulator
provider: local
workload: {peak_rps: 34, prompt_tokens: {p50: 300, p99: 6000}, output_tokens: {p50: 40, p99: 100}}
lanes:
  short: {match: {uncached_prompt_tokens: "< 2000"}, slo: {ttft: {p99: 300ms}}, max_wait: 1s}
  long: {slo: {ttft: {p99: 2s}}, max_wait: 1s}
capacity: {gpus: [L40S], max_nodes: 20}
"""


def searched(
    *,
    least: int = 1,
    engine: str = "emulator",
    rps: float = 12,
    burst: str = "burst_cv: 1.0",
    ttft: str = "400ms",
    itl: str = "60ms",
    most: int = 100,
    rows: list[TracedRequest] | None = None,
    accepts_risk: bool = False,
    launch: str = "",
) -> FleetSearch:
    """Return what the closed form finds for a lane called `all` of one-GPU nodes."""
    profile = parse_profile(
        _TEXT.format(engine=engine, rps=rps, burst=burst, ttft=ttft, itl=itl, most=most, least=least, launch=launch),
        source="test",
    )
    return search_fleet(
        profile,
        model_card=resolve_model(profile.model, CATALOGUE),
        catalogue=CATALOGUE,
        offerings=tuple(each for each in OFFERINGS if each.gpu_count == 1),
        profile_hash="hash",
        emulated=frozenset({"all"}) if engine == "emulator" else frozenset(),
        trace_rows=rows,
        accepts_risk=accepts_risk,
    )


def proven(plan: Plan) -> tuple[int, float]:
    """Return the replicas of the one lane, and its share of good requests."""
    (lane,) = plan.lanes
    assert lane.proof is not None
    assert lane.proof.good_share is not None
    return lane.replicas, lane.proof.good_share


def test_what_is_printed_is_what_the_simulation_measured() -> None:
    plan = prove(searched(), None, requests=1500)
    (lane,) = plan.lanes
    assert "synthetic arrivals" in plan.proof
    assert proven(plan)[1] >= 0.995
    forecast = lane.forecast
    assert forecast.ttft_p99_low_s <= forecast.ttft_p99_s <= forecast.ttft_p99_high_s <= 0.4
    assert forecast.ttft_p99_s != searched().plan().lanes[0].forecast.ttft_p99_s


def test_the_same_profile_is_proven_alike_twice() -> None:
    assert prove(searched(), None, requests=800) == prove(searched(), None, requests=800)


def test_burstier_arrivals_are_proven_with_more_replicas() -> None:
    calm = proven(prove(searched(rps=25), None, requests=1500))
    bursty = proven(prove(searched(rps=25, burst="dispersion_10s: 60"), None, requests=1500))
    assert calm[0] < bursty[0]
    assert bursty[1] >= 0.995


def test_an_engine_that_may_be_slower_than_the_model_takes_no_fewer_and_its_interval_is_wider() -> None:
    words = {"ttft": "700ms", "itl": "90ms"}
    emulated = prove(searched(**words), None, requests=1000).lanes[0]  # type: ignore[arg-type]  # words by name
    real = prove(searched(engine="vllm", **words), None, requests=1000).lanes[0]  # type: ignore[arg-type]  # the same
    assert emulated.replicas <= real.replicas
    assert real.forecast.itl_p99_s < real.forecast.itl_p99_high_s <= 0.09
    assert emulated.forecast.itl_p99_s == emulated.forecast.itl_p99_high_s


def bursty_rows(*, seconds: float, seed: int = 3) -> list[TracedRequest]:
    rng = random.Random(seed)
    times = burst_times_s(8.0, dispersion_1s=3.0, dispersion_10s=15.0, rng=rng)
    return [
        TracedRequest(at, rng.randint(200, 2500), rng.randint(20, 150))
        for at in takewhile(lambda at: at < seconds, times)
    ]


def test_of_a_long_trace_windows_are_replayed_the_worst_among_them() -> None:
    rows = bursty_rows(seconds=3600.0)
    worst = max(range(len(rows) - 400), key=lambda n: rows[n].arrival_s - rows[n + 400].arrival_s)
    profile = replace(searched().profile, workload=replace(searched().profile.workload, trace="day.csv", peak_rps=20.0))
    load = proof_load(profile, rows, requests_max=2000, warm_s=5.0)
    assert load.is_traced
    assert 4 <= len(load.runs) < 40
    assert f"{len(rows):,}" in load.about
    lengths = {(round(each.prompt_tokens), each.output_tokens) for run in load.runs for each in run}
    busiest = {(row.prompt_tokens, row.output_tokens) for row in rows[worst : worst + 400]}
    assert len(busiest & lengths) > 200


def test_of_a_long_trace_a_small_lanes_own_clump_is_measured() -> None:
    rng = random.Random(8)
    # Every second a long request among two hundred short ones, and once, far from the busiest minutes, twenty at a time.
    long = [TracedRequest(float(second), 6000, 30) for second in range(1800)]
    clump = [TracedRequest(1500.0 + n / 20, 6001, 31) for n in range(20)]
    short = [TracedRequest(rng.uniform(0.0, 600.0 if n % 2 else 1800.0), 300, 40) for n in range(40_000)]
    rows = sorted((*long, *clump, *short), key=lambda row: row.arrival_s)
    profile = parse_profile(_TWO_LANES, source="test")
    load = proof_load(profile, rows, requests_max=4000, warm_s=5.0)
    measured = [each for run in load.runs for each in run if each.at_s >= load.warm_s]
    assert sum(each.prompt_tokens == 6001 for each in measured) == len(clump)
    assert load.requests < len(rows) / 3


def test_a_short_trace_is_replayed_whole_at_the_profiles_rate() -> None:
    rows = bursty_rows(seconds=120.0)
    profile = replace(searched().profile, workload=replace(searched().profile.workload, trace="day.csv", peak_rps=40.0))
    load = proof_load(profile, rows, requests_max=4000, warm_s=5.0)
    assert (len(load.runs), len(load.runs[0])) == (1, len(rows))
    assert load.run_s[0] < 60.0


@pytest.mark.parametrize(("count", "words"), [(1, "1 request"), (40, "40 requests")])
def test_of_a_trace_of_few_requests_a_caution_tells_that_they_tell_no_tail(count: int, words: str) -> None:
    rows = [TracedRequest(float(n), 500, 50) for n in range(count)]
    plan = prove(searched(rps=1, rows=rows), rows)
    assert plan.proof.startswith("the one request of" if count == 1 else "all 40 requests of")
    assert any(each.startswith(f"the trace has {words}: ") for each in plan.cautions)
    many = [TracedRequest(float(n), 500, 50) for n in range(100)]
    assert not any("the trace has" in each for each in prove(searched(rps=1, rows=many), many).cautions)


def test_a_promise_that_no_count_is_shown_to_keep_is_refused_and_taken_at_ones_own_risk() -> None:
    # Prompts of 30,000 tokens, one in fifty, take seconds on their own; the closed form has only their percentiles.
    rng = random.Random(5)
    rows = [
        TracedRequest(at, 30_000 if n % 50 == 0 else 300, 40)
        for n, at in enumerate(
            takewhile(lambda at: at < 300.0, burst_times_s(6.0, dispersion_1s=1.0, dispersion_10s=1.0, rng=rng))
        )
    ]
    light = [row._replace(prompt_tokens=300) for row in rows]
    with pytest.raises(InfeasiblePlanError, match="simulated with") as refused:
        prove(searched(rows=light), rows, requests=2000)
    assert "--accept-risk" in (refused.value.hint or "")
    risky = prove(searched(rows=light, accepts_risk=True), rows, requests=2000, accepts_risk=True)
    assert any("lane all" in risk for risk in risky.risks)


def test_the_interval_of_a_tail_holds_other_stretches_of_the_same_traffic() -> None:
    rng = random.Random(11)

    def stretch() -> list[tuple[float, float]]:
        return [(n * 0.5, rng.expovariate(1.0)) for n in range(2000)]

    inside = 0
    for _ in range(100):
        found, other = tail_estimate(stretch(), 0.99), tail_estimate(stretch(), 0.99)
        assert found is not None
        assert other is not None
        assert found.low_s <= found.point_s <= found.high_s
        inside += found.low_s <= other.point_s <= found.high_s
    assert 82 <= inside <= 98


def test_late_requests_that_come_together_leave_more_unknown() -> None:
    samples = [(float(n), 0.0) for n in range(1000)]
    apart, together = [50.0 * n for n in range(20)], [500.0 + n / 10 for n in range(20)]
    assert clumping(apart, samples) == 1.0
    assert clumping(together, samples) > 10.0
    assert missed_upper(20, clumping(together, samples)) > missed_upper(20, 1.0) > 20
    assert missed_upper(0, 1.0) == 0.0


def test_the_dispersion_of_windows_is_around_each_ones_own_mean() -> None:
    slow = (0.0, 50.0, [n + 0.5 for n in range(50)])
    fast = (100.0, 150.0, [100.0 + n / 10 for n in range(500)])
    assert index_of_dispersion([slow, fast], 1.0) == pytest.approx(0.0, abs=0.02)


def test_planning_simulates_where_it_is_asked_to_and_nobody_forbids_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = samples.profile()
    assert os_signals.run(plan_profile(site, profile)).proof == ""
    assert os_signals.run(plan_profile(site, profile, proves=True)).proof == ""
    monkeypatch.delenv(NO_PROOF)
    assert "synthetic arrivals" in os_signals.run(plan_profile(site, profile, proves=True)).proof


def test_a_fleet_of_few_requests_is_looked_at_for_longer_so_that_a_rare_long_prompt_does_not_refuse_it() -> None:
    lane = prove(searched(rps=1, ttft="300ms"), None).lanes[0]
    assert lane.proof is not None
    assert lane.proof.offered > 3500
    assert 0.995 <= (lane.proof.good_share or 0.0) < 1.0
    assert lane.replicas <= 2


def test_a_lane_held_to_many_more_replicas_than_its_load_needs_is_proven_on_fewer_with_all_of_it():
    found = searched(least=160, most=200, rps=12)
    plan = prove(found, None)
    (lane,) = plan.lanes
    assert lane.proof is not None
    assert (lane.replicas, lane.proof.replicas) == (160, 50)
    assert plan.proof.endswith("; of lane all 50 of 160 replicas, with all of its requests")
    # What it forecasts is no better than what all of them come to, but for the replica that one of many prompts happens to get.
    load = proof_load(found.profile, None, requests_max=1500, warm_s=10.0)
    whole, few = (
        Laboratory(profile=found.profile, plan=plan, load=load, crowds=crowds).simulated({"all": 160}, {})["all"]
        for crowds in ({}, {"all": 50})
    )
    assert (whole.replicas, few.replicas) == (160, 50)
    assert whole.ttft is not None
    assert few.ttft is not None
    assert few.ttft.point_s >= 0.98 * whole.ttft.point_s
    assert few.itl_p99_s >= 0.98 * whole.itl_p99_s
    assert few.offered == whole.offered


def test_all_replicas_are_simulated_where_fewer_do_not_keep_the_promise():
    found = searched(rps=60)
    plan = prove(found, None)
    load = proof_load(found.profile, None, requests_max=1500, warm_s=10.0)
    (lane,) = plan.lanes
    laboratory = Laboratory(profile=found.profile, plan=plan, load=load, crowds={"all": 1})
    evidence = laboratory.simulated({"all": lane.replicas}, {})["all"]
    assert lane.replicas > 1
    assert evidence.replicas == lane.replicas
    assert evidence.holds()


def test_lanes_that_cache_no_prefixes_are_proven_as_if_nothing_were_cached():
    uncached = prove(searched(burst="prefix_hit: 0%"), None, requests=1500)
    switched_off = prove(searched(burst="prefix_hit: 60%", launch="prefix_caching: false"), None, requests=1500)
    cached = prove(searched(burst="prefix_hit: 60%"), None, requests=1500)
    assert switched_off.lanes[0].forecast == uncached.lanes[0].forecast
    assert cached.lanes[0].forecast.ttft_p99_s < 0.8 * uncached.lanes[0].forecast.ttft_p99_s


def test_requests_of_one_instant_of_which_only_some_stream_are_proven() -> None:
    found = searched(rps=12)
    plan = found.plan()
    load = proof_load(found.profile, None, requests_max=300, warm_s=5.0)
    pairs = tuple(
        replace(row, at_s=float(number // 2), stream=number % 2 == 0) for number, row in enumerate(load.runs[0][:120])
    )
    twins = replace(load, runs=(pairs,), run_s=(60.0,))
    seen = Laboratory(profile=found.profile, plan=plan, load=twins).simulated({"all": 2}, {})["all"]
    assert seen.offered == 110


def test_of_a_part_of_a_lanes_requests_the_same_ones_arrive_whether_a_run_is_drawn_or_at_hand() -> None:
    found = searched(rps=120)
    plan = found.plan()
    load = proof_load(found.profile, None, requests_max=1500, warm_s=5.0)
    drawn = bursty(load, 120.0, 2.0, 2.0, requests=1500)
    at_hand = replace(drawn, runs=tuple(tuple(run) for run in drawn.runs))
    seen, same = (
        Laboratory(profile=found.profile, plan=plan, load=each).simulated({"all": 20}, {})["all"]
        for each in (drawn, at_hand)
    )
    assert 0 < seen.offered < 0.7 * drawn.requests
    assert seen == same

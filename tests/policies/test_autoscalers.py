"""Peers' autoscalers by their published arithmetic, on small examples."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.core.perf.step import StepBatch
from fleetctl.core.reconcile import reconcile
from fleetctl.model.slo import Quantiles, Validity
from fleetctl.sim.scenario import SimulationSpec
from fleetctl.sim.world import SimulatedWorld
from tests.bench.policies.peers.catalogue import PLAIN_GATEWAY, RULES, dispatcher_of, policy_of
from tests.bench.policies.peers.dynamo import MeasuredEngine, SlaPlanner
from tests.bench.policies.peers.fleetopt import servers_needed, wait_share
from tests.bench.policies.peers.kubernetes import (
    HorizontalPodAutoscaler,
    by_average_value,
    by_value,
    keda_queue,
    keda_ttft,
)
from tests.bench.policies.peers.llm_d import SaturationMean, SpareCapacityAutoscaler, TokenCapacityAutoscaler, slo_law
from tests.bench.policies.peers.serving import KnativePodAutoscaler, RayServeAutoscaler, RequestRateAutoscaler
from tests.bench.policies.peers.signals import LaneSignals, Trailing, lane_signals, p90_s, replica_profile
from tests.bench.policies.scenarios import SCENARIOS
from tests.sim.fleets import offerings

if TYPE_CHECKING:
    from tests.bench.policies.peers.policy import ScalingRule


@pytest.fixture(scope="module")
def profile():
    return replica_profile(SCENARIOS["s1"].desired(), "all")


def signals(now_s: float = 0.0, replicas: int = 3, **figures: Any) -> LaneSignals:
    return LaneSignals(now_s=now_s, replicas=replicas, ready=figures.pop("ready", replicas), **figures)


def answers(rule: ScalingRule, seconds: int, *, replicas: int = 3, **figures: Any) -> list[int]:
    """Return the counts over time of a lane whose count follows the rule."""
    found = []
    for now_s in range(seconds):
        replicas = rule(signals(float(now_s), replicas, **figures))
        found.append(replicas)
    return found


# HPA and KEDA.


@pytest.mark.parametrize(
    ("current", "metric", "target", "wanted"),
    [(3, 200.0, 100.0, 6), (3, 109.0, 100.0, 3), (3, 111.0, 100.0, 4), (4, 40.0, 100.0, 2)],
)
def test_hpa_multiplies_its_count_by_the_ratio_outside_a_tolerance_of_a_tenth(current, metric, target, wanted):
    assert by_value(current, metric, target) == wanted


def test_an_average_value_divides_the_total():
    assert by_average_value(3, 31.0, 5.0) == 7
    assert by_average_value(3, 16.0, 5.0) == 3  # 1.07 of the target: inside the tolerance


def test_hpa_at_most_doubles_or_adds_four_in_fifteen_seconds():
    found = answers(HorizontalPodAutoscaler(lambda _: 40), 46, replicas=2)

    assert [found[at] for at in (0, 14, 15, 30, 45)] == [6, 6, 12, 24, 40]


def test_hpa_goes_down_to_the_highest_recommendation_of_five_minutes():
    wanted = {0: 8, 15: 5}
    found = answers(HorizontalPodAutoscaler(lambda s: wanted.get(int(s.now_s), 2)), 400, replicas=8)

    assert found[:300] == [8] * 300
    assert found[300] == 5  # the eight of the first look are five minutes old
    assert found[315] == 2


def test_keda_reads_the_queue_every_thirty_seconds(profile):
    rule = keda_queue(profile)

    assert rule(signals(0.0, 3, queued=0, waiting=(0, 0, 0))) == 3  # the window of five minutes holds it
    assert rule(signals(15.0, 3, queued=50, waiting=(0, 0, 0))) == 3  # not polled yet
    assert rule(signals(30.0, 3, queued=40, waiting=(3, 4, 3))) == 7  # ceil(50 / 5) = 10, four pods at once


def test_keda_on_ttft_waits_thirty_seconds_before_it_adds(profile):
    assert profile.ttft_limit_s == 3.0
    found = answers(keda_ttft(profile), 61, ttft_p95_s=3.6)  # twice the threshold of .6 * 3 s

    assert [found[at] for at in (0, 15, 29, 30)] == [3, 3, 3, 6]


# Knative, Ray Serve, SkyServe.


def test_knative_divides_the_mean_concurrency_by_its_target():
    assert answers(KnativePodAutoscaler(target=70.0), 120, in_flight=210)[-1] == 3
    assert answers(KnativePodAutoscaler(target=70.0), 120, in_flight=211)[-1] == 4


def test_knative_panics_at_twice_what_is_ready_and_lowers_nothing_for_a_minute():
    rule = KnativePodAutoscaler(target=10.0)
    for now_s in range(0, 60, 2):
        assert rule(signals(float(now_s), 2, in_flight=15)) == 2
    found = [rule(signals(60.0 + at, 2, in_flight=100)) for at in range(0, 8, 2)]
    assert found[-1] == 10  # the mean of six seconds, not of sixty
    quiet = [rule(signals(68.0 + at, 10, in_flight=10)) for at in range(0, 122, 2)]
    assert quiet[20] == 10
    assert quiet[-1] == 5  # then down, to half of what is ready at a time


def test_ray_serve_waits_thirty_seconds_up_and_ten_minutes_down():
    found = answers(RayServeAutoscaler(target=2.0), 40, in_flight=10)
    assert found[29] == 3
    assert found[31] == 5
    down = answers(RayServeAutoscaler(target=2.0), 610, in_flight=2)
    assert down[599] == 3
    assert down[601] == 1


def test_skyserve_divides_the_request_rate_and_waits_five_and_twenty_minutes():
    assert answers(RequestRateAutoscaler(target_rps=1.5), 300, rps=9.0)[279] == 3
    assert answers(RequestRateAutoscaler(target_rps=1.5), 300, rps=9.0)[281] == 6
    assert answers(RequestRateAutoscaler(target_rps=1.5), 1201, rps=1.0)[1179] == 3
    assert answers(RequestRateAutoscaler(target_rps=1.5), 1201, rps=1.0)[1181] == 1


# llm-d.


@pytest.mark.parametrize(
    ("replicas", "ready", "saturation", "wanted"),
    [(3, 3, 1.1, 6), (3, 3, 0.55, 3), (4, 2, 1.1, 4), (3, 3, 0.4, 3), (8, 8, 0.2, 4), (4, 4, 0.0, 0), (5, 5, 2.0, 19)],
)
def test_the_slo_law(replicas, ready, saturation, wanted):
    assert slo_law(replicas, ready, saturation) == wanted


def test_the_slo_law_takes_the_worse_of_ttft_and_tpot_up_to_twice_the_promise():
    assert SaturationMean(3.0, 0.1)(signals(0.0, 3, ttft_p90_s=0.3, itl_p90_s=0.11)) == 6
    assert SaturationMean(3.0, 0.1)(signals(0.0, 3, ttft_p90_s=30.0, itl_p90_s=0.01)) == slo_law(3, 3, 2.0)


def test_the_slo_law_of_one_sample_is_forgotten_after_45_seconds():
    mean = SaturationMean(1.0, 1.0)
    mean(signals(0.0, 3, ttft_p90_s=2.0))
    assert mean(signals(44.0, 3, ttft_p90_s=0.0)) == slo_law(3, 3, 1.0)
    assert mean(signals(46.0, 3, ttft_p90_s=0.0)) == 1


@pytest.mark.parametrize(
    ("kv", "waiting", "change"),
    [
        ((0.9, 0.9), (0, 0), 1),  # both saturated
        ((0.75, 0.75), (0, 0), 1),  # spare KV .05
        ((0.5, 0.5), (3, 3), 1),  # spare queue 2
        ((0.5, 0.5), (0, 0), -0),  # the one left would be full
        ((0.3, 0.3), (0, 0), -1),
        ((0.9, 0.3), (0, 0), 0),  # one saturated, the other has spare: neither more nor fewer
    ],
)
def test_wva_goes_by_what_those_that_are_not_saturated_have_to_spare(kv, waiting, change):
    rule = SpareCapacityAutoscaler()
    assert rule(signals(0.0, 2, kv_usage=kv, waiting=waiting)) == 2 + change


def test_wva_adds_nothing_while_a_replica_is_on_its_way():
    rule = SpareCapacityAutoscaler()
    assert rule(signals(0.0, 3, ready=2, kv_usage=(0.9, 0.9), waiting=(9, 9))) == 3


def test_wva_by_tokens_needs_85_percent_and_spares_70():
    rule = TokenCapacityAutoscaler(capacity_tokens=1000.0, kv_tokens=1000.0, tokens_each=100.0)
    assert rule.wanted(3, 3, 2550.0) == 3
    assert rule.wanted(3, 3, 2560.0) == 4
    assert rule.wanted(3, 2, 2550.0) == 3  # the pending one counts
    assert rule.wanted(3, 3, 1400.0) == 2
    assert rule.wanted(3, 3, 1450.0) == 3


# Dynamo.


def test_the_planner_sums_prefill_over_chunks_and_finds_the_largest_batch_inside_the_itl(profile):
    engine = MeasuredEngine(profile)
    model, chunk = profile.instance.model, profile.instance.limits.max_num_batched_tokens
    first = model.step_s(StepBatch(chunk, chunk * (chunk + 1) / 2, 0, 0))
    assert engine.prefill_s(chunk) == pytest.approx(first)
    assert engine.prefill_s(2 * chunk) > 2 * first

    tight = MeasuredEngine(replace(profile, itl_limit_s=engine.itl_s(20, 4500.0)))
    assert tight.batch_max(4500.0) == 20
    assert engine.batch_max(4500.0) == profile.instance.limits.max_num_seqs


def test_the_forecast_is_the_floor_of_the_correction(profile):
    each = MeasuredEngine(profile).rps(4000.0, 1000.0)
    rule = SlaPlanner(MeasuredEngine(profile))
    idle = {"running": (0, 0, 0), "waiting": (0, 0, 0), "prompt_tokens": 4000.0, "output_tokens": 1000.0}
    assert rule(signals(5.0, 3, rps=4.5 * each, **idle)) == 5
    found = [
        rule(signals(10.0 + 5.0 * at, 5, rps=4.5 * each, **{**idle, "running": (0,) * 5, "waiting": (0,) * 5}))
        for at in range(30)
    ]
    assert set(found) == {5}


def test_the_correction_adds_one_only_where_all_workers_are_late(profile):
    busy = {"running": (50, 50, 50), "prompt_tokens": 4000.0, "output_tokens": 1000.0}
    rule = SlaPlanner(MeasuredEngine(profile))
    rule(signals(5.0, 3, waiting=(0, 0, 0), **busy))
    assert rule(signals(10.0, 3, waiting=(99, 99, 0), **busy)) == 3
    assert rule(signals(15.0, 3, waiting=(99, 99, 99), **busy)) == 4


# FleetOpt.


def test_erlang_c_is_as_in_the_tables():
    assert wait_share(1, 0.5) == pytest.approx(0.5)
    assert wait_share(2, 1.0) == pytest.approx(1.0 / 3.0)
    assert wait_share(10, 7.0) == pytest.approx(0.2217, abs=1e-4)


def test_more_servers_for_a_shorter_wait():
    assert servers_needed(7.0, 1.0, 1e9) == 8
    assert servers_needed(7.0, 1.0, 1.0) > servers_needed(7.0, 1.0, 5.0) > 7


# What they read.


def test_p90_of_a_lognormal_lies_between_its_p50_and_p95():
    assert p90_s(Quantiles(count=9, p50_s=1.0, p95_s=5.180)) == pytest.approx(3.602, abs=1e-3)  # sigma 1
    assert p90_s(Quantiles()) is None


def test_a_trailing_window_forgets():
    seen = Trailing(10.0)
    for at in range(20):
        seen.add(float(at), float(at))
    assert (seen.least, seen.most, seen.mean) == (10.0, 19.0, 14.5)


def test_a_peer_sees_nothing_of_figures_that_stand_still():
    case = SCENARIOS["smoke"]
    world = SimulatedWorld(case.desired(), reconcile, SimulationSpec(settled=case.settled), offerings=offerings())
    world.run(case.trace(1, ""))
    observation = world.observer.observe(world.controller.records.values(), world.heap.now_s, refused={})

    seen = lane_signals(world.desired, observation, "all", now_s=20.0, wanted=3)
    assert seen is not None
    assert (seen.ready, len(seen.waiting)) == (3, 3)
    stale = replace(observation, gateway_validity=Validity.STALE)
    assert lane_signals(world.desired, stale, "all", now_s=20.0, wanted=3) is None


def test_every_peer_has_a_gateway_that_it_is_published_with():
    assert set(PLAIN_GATEWAY) == set(RULES)
    for name in RULES:
        assert dispatcher_of(PLAIN_GATEWAY[name]) is not None
        assert callable(policy_of(name))

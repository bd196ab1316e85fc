"""Who arrives where, and how long their requests are."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import NormalDist

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.dispersion import index_of_dispersion
from fleetctl.core.plan.traced import RequestHints, TracedRequest
from fleetctl.core.plan.workload import AVERAGE_TO_PEAK, lane_demands, lognormal
from fleetctl.model.profile import Distribution, LaneMatch
from fleetctl.testing import samples
from tests.plan.profiles import planned, profile_with

SHORT_AND_LONG = samples.profile()  # short under 512 uncached prompt tokens, long for the rest


def test_boundary_splits_the_lognormal_where_its_distribution_says() -> None:
    demands = lane_demands(SHORT_AND_LONG)
    mu, sigma = lognormal(SHORT_AND_LONG.workload.prompt_tokens)
    below = NormalDist(mu, sigma).cdf(math.log(512))
    assert demands["short"].rps == pytest.approx(SHORT_AND_LONG.workload.peak_rps * below)
    assert max(demands["short"].prompt.points) <= 512 <= min(demands["long"].prompt.points)


def test_lane_means_weigh_up_to_the_whole_mean() -> None:
    demands = lane_demands(SHORT_AND_LONG)
    mu, sigma = lognormal(SHORT_AND_LONG.workload.prompt_tokens)
    total = sum(d.rps * d.prompt.mean for d in demands.values()) / SHORT_AND_LONG.workload.peak_rps
    assert total == pytest.approx(math.exp(mu + sigma**2 / 2), rel=1e-3)


def test_prefix_hits_move_long_prompts_into_the_short_lane() -> None:
    hitting = replace(SHORT_AND_LONG, workload=replace(SHORT_AND_LONG.workload, prefix_hit=0.5))
    assert lane_demands(hitting)["short"].rps > lane_demands(SHORT_AND_LONG)["short"].rps
    assert max(lane_demands(hitting)["short"].prompt.points) > 512


def test_batch_hints_go_to_the_batch_lane_whatever_their_length() -> None:
    batch = replace(SHORT_AND_LONG.lanes[0], name="batch", match=LaneMatch(batch=True))
    profile = replace(
        SHORT_AND_LONG,
        lanes=(*SHORT_AND_LONG.lanes, batch),
        workload=replace(SHORT_AND_LONG.workload, batch_share=0.25),
    )
    demands = lane_demands(profile)
    assert demands["batch"].rps == pytest.approx(0.25 * profile.workload.peak_rps)
    assert min(demands["batch"].prompt.points) < 512 < max(demands["batch"].prompt.points)


def test_what_no_lane_takes_is_no_demand() -> None:
    profile = replace(SHORT_AND_LONG, lanes=SHORT_AND_LONG.lanes[:1])
    assert lane_demands(profile)["short"].rps == pytest.approx(lane_demands(SHORT_AND_LONG)["short"].rps)


def test_lanes_for_unstreamed_requests_get_none_of_a_streaming_workload() -> None:
    unstreamed = replace(SHORT_AND_LONG.lanes[0], match=LaneMatch(stream=False))
    demands = lane_demands(replace(SHORT_AND_LONG, lanes=(unstreamed, SHORT_AND_LONG.lanes[1])))
    assert demands["short"].rps == 0
    assert demands["long"].rps == pytest.approx(SHORT_AND_LONG.workload.peak_rps)


def test_lanes_for_unstreamed_requests_get_the_share_that_does_not_stream() -> None:
    unstreamed = replace(SHORT_AND_LONG.lanes[0], match=LaneMatch(stream=False))
    workload = replace(SHORT_AND_LONG.workload, stream_share=0.6)
    demands = lane_demands(replace(SHORT_AND_LONG, lanes=(unstreamed, SHORT_AND_LONG.lanes[1]), workload=workload))
    assert demands["short"].rps == pytest.approx(0.4 * workload.peak_rps)


def test_batch_hints_without_a_batch_lane_are_chosen_for_like_all_others() -> None:
    hinted = replace(SHORT_AND_LONG, workload=replace(SHORT_AND_LONG.workload, batch_share=0.3))
    assert lane_demands(hinted)["short"].rps == pytest.approx(lane_demands(SHORT_AND_LONG)["short"].rps)


def test_batch_lanes_alone_take_what_carries_no_hint() -> None:
    short, long = SHORT_AND_LONG.lanes
    lanes = (replace(short, match=replace(short.match, batch=True)), replace(long, match=LaneMatch(batch=True)))
    assert lane_demands(replace(SHORT_AND_LONG, lanes=lanes)) == lane_demands(SHORT_AND_LONG)


def test_a_trace_replaces_lengths_and_scales_to_the_peak() -> None:
    rows = [TracedRequest(i * 0.5, 100 if i % 4 else 2000, 50 + i % 10) for i in range(1200)]
    demands = lane_demands(SHORT_AND_LONG, rows)
    assert demands["short"].rps == pytest.approx(0.75 * SHORT_AND_LONG.workload.peak_rps)
    assert set(demands["short"].prompt.points) == {100.0}
    assert set(demands["long"].prompt.points) == {2000.0}
    assert demands["long"].output.mean == pytest.approx(54.5, abs=1.5)


def test_a_flat_trace_has_an_average_of_its_peak_and_a_spiky_one_less() -> None:
    flat = [TracedRequest(i * 0.5, 100, 50) for i in range(1200)]
    spiky = [*flat, *(TracedRequest(300 + i * 0.01, 100, 50) for i in range(2000))]
    peak = SHORT_AND_LONG.workload.peak_rps
    assert lane_demands(SHORT_AND_LONG, flat)["short"].average_rps == pytest.approx(peak, rel=0.01)
    assert lane_demands(SHORT_AND_LONG, spiky)["short"].average_rps < 0.2 * peak


def test_a_bursty_trace_raises_the_burst_cv() -> None:
    rng = random.Random(3)
    at, rows = 0.0, []
    for _ in range(3000):
        at += 0.0 if rng.random() < 0.8 else rng.expovariate(1.0)
        rows.append(TracedRequest(at, 100, 50))
    assert lane_demands(SHORT_AND_LONG, rows)["short"].burst_cv > 1.5
    assert lane_demands(SHORT_AND_LONG)["short"].burst_cv < 1.5


def test_a_trace_says_which_lane_its_requests_name() -> None:
    named = [TracedRequest(i * 0.5, 100, 50, hints=RequestHints(lane="long" if i % 4 else "")) for i in range(1200)]
    demands = lane_demands(SHORT_AND_LONG, named)
    assert demands["long"].rps == pytest.approx(0.75 * SHORT_AND_LONG.workload.peak_rps)
    assert demands["short"].rps == pytest.approx(0.25 * SHORT_AND_LONG.workload.peak_rps)
    unknown = [row if i % 3 else row._replace(hints=RequestHints(lane="nosuch")) for i, row in enumerate(named)]
    demands = lane_demands(SHORT_AND_LONG, unknown)
    assert sum(demand.rps for demand in demands.values()) == pytest.approx(
        SHORT_AND_LONG.workload.peak_rps * 800 / 1200
    )
    assert "400 name no lane of the profile" in demands["long"].source


def test_a_trace_says_what_streams_and_what_is_for_batch() -> None:
    short, long = SHORT_AND_LONG.lanes
    lanes = (replace(short, match=replace(short.match, stream=True)), long, replace(long, name="later"))
    lanes = (*lanes[:2], replace(lanes[2], match=LaneMatch(batch=True)))
    profile = replace(SHORT_AND_LONG, lanes=lanes)
    kinds = [RequestHints(stream=True), RequestHints(stream=False), RequestHints(batch=True), RequestHints(batch=True)]
    demands = lane_demands(profile, [TracedRequest(i * 0.5, 100, 50, hints=kinds[i % 4]) for i in range(1200)])
    shares = {name: demand.rps / profile.workload.peak_rps for name, demand in demands.items()}
    assert shares == pytest.approx({"short": 0.25, "long": 0.25, "later": 0.5})


def test_what_a_trace_says_is_cached_is_no_prefill_and_moves_prompts_to_the_short_lane() -> None:
    rows = [TracedRequest(i * 0.5, 2000, 50, 1900 if i % 2 else 0) for i in range(1200)]
    demands = lane_demands(SHORT_AND_LONG, rows)
    assert demands["short"].rps == pytest.approx(demands["long"].rps)
    assert set(demands["short"].prompt.points) == {2000.0}, "the whole prompt is in the KV cache"
    assert demands["short"].prefix_hit == pytest.approx(0.95)
    assert demands["long"].prefix_hit == 0.0
    promised = replace(SHORT_AND_LONG, workload=replace(SHORT_AND_LONG.workload, prefix_hit=0.5))
    assert lane_demands(promised, rows)["long"].prefix_hit == 0.0, "the trace knows better than the profile"


def test_without_a_trace_the_average_is_a_published_share_of_the_peak() -> None:
    demand = lane_demands(profile_with(rps=10))["all"]
    assert demand.average_rps == pytest.approx(10 * AVERAGE_TO_PEAK)


@given(
    p50=st.floats(10, 4000),
    ratio=st.floats(1.0, 30.0),
    hit=st.floats(0, 0.95),
    boundary=st.integers(1, 8000),
    batch=st.floats(0, 1),
)
def test_every_request_belongs_to_one_lane(p50: float, ratio: float, hit: float, boundary: int, batch: float) -> None:
    short, long = SHORT_AND_LONG.lanes
    lanes = (
        replace(short, match=LaneMatch(uncached_prompt_tokens_max=boundary)),
        long,
        replace(long, name="batch", match=LaneMatch(batch=True)),
    )
    workload = replace(
        SHORT_AND_LONG.workload,
        prompt_tokens=Distribution(p50=p50, p99=p50 * ratio),
        prefix_hit=hit,
        batch_share=batch,
    )
    demands = lane_demands(replace(SHORT_AND_LONG, lanes=lanes, workload=workload))
    assert sum(d.rps for d in demands.values()) == pytest.approx(workload.peak_rps)
    assert all(d.rps >= 0 and min(d.prompt.points) >= 1 for d in demands.values())


def test_a_pinned_model_length_leaves_prompts_as_spread_as_they_are() -> None:
    lanes = tuple(replace(lane, launch=replace(lane.launch, max_model_len=131_072)) for lane in SHORT_AND_LONG.lanes)
    pinned = lane_demands(replace(SHORT_AND_LONG, lanes=lanes))
    free = lane_demands(SHORT_AND_LONG)
    for name, demand in free.items():
        assert pinned[name].rps == pytest.approx(demand.rps)
        assert pinned[name].prompt.points == pytest.approx(demand.prompt.points, rel=1e-3)


def test_a_burst_that_nobody_knows_is_planned_with_twice_poissons_variance_and_said() -> None:
    known = profile_with(burst_cv=1.0)
    unknown = replace(known, workload=replace(known.workload, burst_cv=None))
    assert lane_demands(unknown)["all"].burst_cv == pytest.approx(math.sqrt(2.0))
    assert any("how bursty" in caution for caution in planned(unknown).cautions)
    assert not any("how bursty" in caution for caution in planned(known).cautions)


def test_the_index_of_dispersion_of_evenly_spaced_arrivals_is_nothing_and_of_clumps_their_size() -> None:
    even = [(0.0, 1000.0, [float(n) + 0.5 for n in range(1000)])]
    clumped = [(0.0, 1000.0, [10.0 * n + 0.5 for n in range(100) for _ in range(10)])]
    assert index_of_dispersion(even, 1.0) == 0.0
    assert index_of_dispersion(clumped, 1.0) == pytest.approx(9.0, rel=0.02)
    assert index_of_dispersion(clumped, 10.0) == 0.0
    assert index_of_dispersion([(0.0, 5.0, [1.0] * 20)], 1.0) is None

"""The plan is for the fleet that runs: its lanes get the shares that the gateway's lane choice gives them."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.controller.table import build_table
from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.admission.tokens import PromptSize, TokenRatio
from fleetctl.core.lanes import LaneChoice
from fleetctl.core.plan.traced import TracedRequest
from fleetctl.core.plan.workload import lane_demands, lognormal
from fleetctl.model.decision import Memory
from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.model.profile import Distribution, LaneMatch, Profile, WorkloadSpec
from fleetctl.plugins import load_engine
from fleetctl.testing import samples

if TYPE_CHECKING:
    from fleetctl.model.gateway import RouteLane

SAMPLES = 2000
UNPINNED = 10**9
BASE = samples.profile()


def matches() -> st.SearchStrategy[LaneMatch]:
    bounds = st.one_of(st.none(), st.integers(1, 8000))
    return st.builds(
        LaneMatch,
        uncached_prompt_tokens_min=bounds,
        uncached_prompt_tokens_max=bounds,
        stream=st.sampled_from((None, None, True, False)),
        batch=st.booleans(),
    )


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    found = draw(st.lists(matches(), min_size=1, max_size=4))
    p50 = draw(st.floats(10, 4000))
    return replace(
        BASE,
        lanes=tuple(replace(BASE.lanes[0], name=f"lane-{i}", match=match) for i, match in enumerate(found)),
        workload=replace(
            BASE.workload,
            prompt_tokens=Distribution(p50=p50, p99=p50 * draw(st.floats(1.0, 30.0))),
            prefix_hit=draw(st.floats(0, 0.95)),
            batch_share=draw(st.floats(0, 1)),
            stream_share=draw(st.floats(0, 1)),
        ),
    )


def gateway_choice(profile: Profile) -> LaneChoice[RouteLane]:
    """Return the choice the gateway makes under this profile's routing table."""
    lanes = tuple(samples.lane_plan(lane.name) for lane in profile.lanes)
    held = {lane.name: lane.max_model_len for lane in profile.lanes}
    lanes = tuple(
        replace(lane, launch=replace(lane.launch, max_model_len=held[lane.lane] or UNPINNED)) for lane in lanes
    )
    plan = replace(samples.plan(), lanes=lanes)
    desired = Desired(
        fleet="demo", phase=DesiredPhase.UP, generation=1, profile=profile, plan=plan,
        created_at=samples.EPOCH, changed_at=samples.EPOCH,
    )  # fmt: skip
    return LaneChoice(build_table(desired, (), Memory(), engine_of=load_engine, key_hashes=(), version=1).lanes)


def sampled(workload: WorkloadSpec, lengths: list[float], rng: random.Random) -> list[tuple[float, bool, bool]]:
    """Return requests as (uncached prompt tokens, carries the batch hint, streams), shares spread evenly over lengths."""
    hinted = round(workload.batch_share * SAMPLES)
    streaming = round(workload.stream_share * (SAMPLES - hinted))
    requests = []
    for length in lengths:
        kinds = [(True, False, hinted), (False, True, streaming), (False, False, SAMPLES - hinted - streaming)]
        batch_hint, stream, _ = rng.choices(kinds, [kind[2] for kind in kinds])[0]
        requests.append((length * (1 - workload.prefix_hit), batch_hint, stream))
    return requests


def routed(choice: LaneChoice[RouteLane], requests: list[tuple[float, bool, bool]]) -> Counter[str]:
    """Return how many of the requests enter each lane."""
    found: Counter[str] = Counter()
    for tokens, batch_hint, stream in requests:
        lane = choice.choose_by(tokens, batch_hint=batch_hint, stream=stream)
        found["" if isinstance(lane, Refusal) else lane.name] += 1
    return found


@given(profile=profiles(), seed=st.integers(0, 2**32))
def test_planned_shares_are_the_shares_the_gateway_routes(profile: Profile, seed: int) -> None:
    mu, sigma = lognormal(profile.workload.prompt_tokens)
    normal = NormalDist()
    lengths = [math.exp(mu + sigma * normal.inv_cdf((i + 0.5) / SAMPLES)) for i in range(SAMPLES)]
    counted = routed(gateway_choice(profile), sampled(profile.workload, lengths, random.Random(seed)))
    for name, demand in lane_demands(profile).items():
        planned = demand.rps / profile.workload.peak_rps
        # Five standard deviations of a draw of this size, beside the kinds' rounding to whole samples.
        assert counted[name] / SAMPLES == pytest.approx(planned, abs=5 * 0.5 / math.sqrt(SAMPLES) + 2 / SAMPLES)


@given(profile=profiles(), lengths=st.lists(st.integers(1, 20_000), min_size=1, max_size=60))
def test_planned_shares_of_a_trace_are_the_shares_the_gateway_routes(profile: Profile, lengths: list[int]) -> None:
    # Every request once of each kind, the kinds equally frequent: the shares are exact.
    workload = replace(profile.workload, batch_share=1 / 3, stream_share=0.5)
    profile = replace(profile, workload=workload)
    kinds = ((True, False), (False, True), (False, False))
    requests = [(n * (1 - workload.prefix_hit), hint, stream) for n in lengths for hint, stream in kinds]
    counted = routed(gateway_choice(profile), requests)
    rows = [TracedRequest(float(at_s), n, 10) for at_s, n in enumerate(lengths)]
    for name, demand in lane_demands(profile, rows).items():
        assert demand.rps / workload.peak_rps == pytest.approx(counted[name] / len(requests))


def test_thirty_percent_batch_hints_without_a_batch_lane_change_no_share() -> None:
    hinted = replace(BASE, workload=replace(BASE.workload, batch_share=0.3))
    assert lane_demands(hinted) == lane_demands(BASE)


@st.composite
def pinned(draw: st.DrawFn) -> Profile:
    """Return a profile of which some lanes pin what their engines hold of one request."""
    profile = draw(profiles())
    lengths = [draw(st.one_of(st.none(), st.integers(200, 6000))) for _ in profile.lanes]
    lanes = [
        replace(lane, launch=replace(lane.launch, max_model_len=length))
        for lane, length in zip(profile.lanes, lengths, strict=True)
    ]
    p50 = draw(st.floats(10, 1000))
    output = Distribution(p50=p50, p99=p50 * draw(st.floats(1.0, 10.0)))
    return replace(profile, lanes=tuple(lanes), workload=replace(profile.workload, output_tokens=output))


def entered(
    choice: LaneChoice[RouteLane], prompt: int, uncached: float, output: int, *, hint: bool, stream: bool
) -> str:
    """Return the lane that a gateway fresh from its start puts a request into; "": none."""
    ratio = TokenRatio()
    size = PromptSize(text_bytes=4 * prompt)
    tokens = ratio.request_tokens(size, ratio.prompt_tokens(size), output)
    lane = choice.choose_holding(
        tokens, header=None, batch_hint=hint, uncached_prompt_tokens=lambda _: uncached, stream=stream
    )
    return "" if isinstance(lane, Refusal) else lane.name


@settings(max_examples=60, deadline=None)
@given(profile=pinned(), seed=st.integers(0, 2**32))
def test_planned_shares_with_pinned_lengths_are_the_shares_the_gateway_routes(profile: Profile, seed: int) -> None:
    rng, normal, workload = random.Random(seed), NormalDist(), profile.workload
    mu, sigma = lognormal(workload.prompt_tokens)
    answers = lognormal(workload.output_tokens)
    choice = gateway_choice(profile)
    counted: Counter[str] = Counter()
    kinds = [(True, False), (False, True), (False, False)]
    weights = [workload.batch_share, (1 - workload.batch_share) * workload.stream_share]
    for _ in range(SAMPLES):
        prompt = math.exp(mu + sigma * normal.inv_cdf(rng.uniform(1e-9, 1 - 1e-9)))
        output = math.exp(answers[0] + answers[1] * normal.inv_cdf(rng.uniform(1e-9, 1 - 1e-9)))
        hint, stream = rng.choices(kinds, [*weights, 1 - sum(weights)])[0]
        uncached = prompt * (1 - workload.prefix_hit)
        counted[entered(choice, max(1, round(prompt)), uncached, round(output), hint=hint, stream=stream)] += 1
    for name, demand in lane_demands(profile).items():
        # Six standard deviations of a draw of this size; of the outputs every point stands for 1 in 160, and lengths
        # are rounded to whole tokens.
        assert counted[name] / SAMPLES == pytest.approx(
            demand.rps / workload.peak_rps, abs=0.5 * 6 / math.sqrt(SAMPLES) + 0.02
        )


def test_answers_that_a_pinned_lane_does_not_hold_are_planned_where_they_go() -> None:
    workload = replace(
        BASE.workload,
        prompt_tokens=Distribution(p50=300, p99=301),
        output_tokens=Distribution(p50=400, p99=401),
        prefix_hit=0.0,
        batch_share=0.0,
    )
    short, rest = BASE.lanes[0], BASE.lanes[1]
    short = replace(short, launch=replace(short.launch, max_model_len=600))
    found = lane_demands(replace(BASE, workload=workload, lanes=(short, rest)))
    assert found[short.name].rps == 0.0
    assert found[rest.name].rps == pytest.approx(workload.peak_rps)
    assert "max_tokens" in found[rest.name].source

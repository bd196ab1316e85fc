"""What a search leaves out could not have been chosen."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.catalogue.known import resolve_model
from fleetctl.core.plan.bounds import fewest_conceivable
from fleetctl.core.plan.candidates import LaneCandidates
from fleetctl.core.plan.joint import choose_together
from fleetctl.core.plan.layouts import LayoutRules
from fleetctl.core.plan.search import Supply, lane_instances, lane_options, search_lanes
from fleetctl.core.plan.sizing import size
from fleetctl.core.plan.workload import lane_demands
from fleetctl.core.ttft_budget import for_planning
from fleetctl.errors import FleetctlError
from fleetctl.solver import solve
from fleetctl_local.offerings import offerings
from tests.plan.profiles import CATALOGUE, profile_with

if TYPE_CHECKING:
    from fleetctl.core.plan.options import Option
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.profile import Profile

SEED = 20261129
RULES = LayoutRules(has_stages=True, has_ranks=True, spans_machines=True, has_fp8_kv=True)
SOLD = tuple(
    replace(each, is_shareable=each.gpu_count > 1, is_emulated=False)
    for each in offerings()
    if each.zone == min(other.zone for other in offerings() if other.region == each.region)
)
MODELS = (
    ("meta-llama/Llama-3.1-8B-Instruct", "bf16"),
    ("meta-llama/Llama-3.1-70B-Instruct", "fp8"),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", "bf16"),
    ("openai/gpt-oss-120b", "int4"),
    ("google/gemma-3-27b-it", "bf16"),
)


def drawn(rng: random.Random) -> tuple[Profile, Supply]:
    """Return a profile of any load, length, promise and bound, and a few types of machine on both markets to plan it on."""
    model, precision = rng.choice(MODELS)
    prompt, output = rng.choice((60, 300, 1000, 4000)), rng.choice((20, 130, 500))
    promise = rng.choice(("ttft: {{p99: {t}s}}, itl: {{p99: {i}ms}}", "ttft: {{p99: {t}s}}", "completion: {{p95: 1h}}"))
    profile = profile_with(
        model=model,
        precision=precision,
        rps=rng.choice((0.2, 3, 40, 300)),
        prompt=(prompt, prompt * rng.choice((1, 4))),
        output=(output, output * rng.choice((1, 5))),
        burst_cv=rng.choice((1.0, 2.0)),
        hit=rng.choice((0, 60)),
        slo=promise.format(t=rng.choice((0.4, 2, 8)), i=rng.choice((35, 60, 120))),
        spot=rng.choice(("none", "all")),
        most=rng.choice((3, 60, 4000)),
        gpus="",
    )
    types = rng.sample(sorted({each.instance_type for each in SOLD}), 3)
    kept: tuple[Offering, ...] = tuple(each for each in SOLD if each.instance_type in types)
    limits = {rng.choice(types): rng.choice((1, 4, 20))} if rng.random() < 0.4 else {}
    profile = for_planning(replace(profile, capacity=replace(profile.capacity, limits=limits)))
    card = resolve_model(profile.model, CATALOGUE)
    supply = Supply(
        card=card, other_models={}, catalogue=CATALOGUE, offerings=kept, layouts={"all": RULES}, solve=solve
    )
    return profile, supply


def cheapest_of_all(profile: Profile, supply: Supply) -> tuple[Option, ...]:
    """Return what is chosen where every kind of replica is sized."""
    demands = lane_demands(profile, None)
    found = [lane_options(profile, lane, demands[lane.name], supply) for lane in profile.lanes]
    for _, error in found:
        if error is not None:
            raise error
    return choose_together(profile.capacity, [each for each, _ in found], head_usd_per_hour=0.0, solve=solve)


@pytest.mark.parametrize("part", range(6))
def test_what_is_left_out_is_never_what_costs_least(part: int) -> None:
    rng, planned = random.Random(SEED + part), 0
    for number in range(9):
        profile, supply = drawn(rng)
        try:
            best = cheapest_of_all(profile, supply)
        except FleetctlError:
            continue
        chosen = search_lanes(profile, lane_demands(profile, None), supply)
        costs = [math.fsum(o.cost_usd_per_hour for o in each) for each in (chosen, best)]
        assert costs[0] == pytest.approx(costs[1], abs=1e-9), (SEED + part, number)
        kinds = [[(o.key, o.result.instance.layout, o.result.needed) for o in each] for each in (chosen, best)]
        assert kinds[0] == kinds[1], (SEED + part, number)
        planned += 1
    assert planned >= 2


def test_no_kind_of_replica_carries_a_lane_with_fewer_than_its_floor() -> None:
    rng, compared, nearest = random.Random(SEED), 0, 0.0
    for number in range(8):
        profile, supply = drawn(rng)
        demand, lane = lane_demands(profile, None)["all"], profile.lanes[0]
        try:
            kinds = {one.alike: one for one in lane_instances(profile, lane, demand, supply)}
        except FleetctlError:
            continue
        for one in kinds.values():
            found = size(lane, one, demand)
            floor = fewest_conceivable(lane, one, demand)
            assert found is None or found.needed >= floor, (SEED, number, one.label)
            if found is not None:
                compared += 1
                nearest = max(nearest, floor / found.needed)
    assert compared >= 12
    assert nearest > 0.6  # a floor far below everything would spare nothing


def test_most_kinds_are_left_out_where_nothing_binds() -> None:
    profile = for_planning(profile_with(rps=300, gpus="", most=4000))
    lane, demand = profile.lanes[0], lane_demands(profile, None)["all"]
    card = resolve_model(profile.model, CATALOGUE)
    supply = Supply(card=card, other_models={}, catalogue=CATALOGUE, offerings=SOLD, layouts={"all": RULES})
    found = lane_instances(profile, lane, demand, supply)
    promising = LaneCandidates(profile, lane, demand, found, guests_itl_s=None).promising()
    kinds = [len({one.alike for one in each}) for each in ([o.result.instance for o in promising], found)]
    assert 1 <= kinds[0] < kinds[1] / 3, kinds

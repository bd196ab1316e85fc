"""Machines of several types for one lane, and limits that lanes share: one program over all of them."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.catalogue.known import resolve_model
from fleetctl.config.profile import parse_profile
from fleetctl.core.hazard import NOTHING_LEARNED
from fleetctl.core.machines import by_type, machine_count
from fleetctl.core.placement import RejectionCode, next_offering, ranked_offerings
from fleetctl.core.plan import make_plan
from fleetctl.core.plan.joint import choose_together, crossed
from fleetctl.core.plan.lane_cost import lane_cost_usd_per_hour
from fleetctl.core.plan.options import MIX_SAVES_MIN, Option
from fleetctl.core.plan.program import IntegerProgram, LinearConstraint, Solve
from fleetctl.core.plan.search import Supply, lane_options
from fleetctl.core.plan.workload import lane_demands
from fleetctl.errors import InfeasiblePlanError
from fleetctl.model.catalogue import Market, Offering
from fleetctl.model.profile import CapacitySpec
from fleetctl.model.replica import ReplicaState
from fleetctl.solver import solve
from fleetctl.testing import samples
from tests.plan.profiles import CATALOGUE

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import Profile
    from fleetctl.model.replica import Replica

# AWS us-east-1 on demand; the last one is dearer a GPU than its halves, as some are.
_TYPES = {
    "p5.4xlarge": ("H100", 1, 6.88),
    "p5.48xlarge": ("H100", 8, 55.04),
    "g6e.xlarge": ("L40S", 1, 1.861),
    "g6e.12xlarge": ("L40S", 4, 10.49),
    "g6e.48xlarge": ("L40S", 8, 30.13),
    "p5en.48xlarge": ("H200", 8, 63.3),
}
SOLD = tuple(
    Offering(
        provider="test", instance_type=name, gpu=gpu, gpu_count=count, region="here", zone="here-a", market=market,
        price_usd_per_hour=usd * (1.0 if market is Market.ON_DEMAND else 0.4), is_shareable=count > 1,
    )
    for name, (gpu, count, usd) in _TYPES.items()
    for market in Market
)  # fmt: skip
_TEXT = """
apiVersion: fleetctl/v1
name: mixed
model: {{id: meta-llama/Llama-3.1-8B-Instruct}}
engine: vllm
provider: local
workload:
  peak_rps: {rps}
  prompt_tokens: {{p50: 700, p99: 3000}}
  output_tokens: {{p50: 150, p99: 600}}
  burst_cv: 1.0
lanes:
  short:
    match: {{uncached_prompt_tokens: "< 700"}}
    slo: {{ttft: {{p99: 500ms}}, itl: {{p99: 60ms}}}}
    max_wait: 250ms
    spot: {spot}
    replicas: {{min: 1, max: 400}}
  long: {{slo: {{ttft: {{p99: 2s}}, itl: {{p99: 80ms}}}}, max_wait: 1s, spot: none, replicas: {{min: 1, max: 400}}}}
capacity: {{gpus: [{gpus}], max_nodes: {nodes}, limits: {{{limits}}}}}
"""


def profile(
    rps: float = 150, *, nodes: int = 900, limits: str = "", gpus: str = "L40S, H100, H200", spot: str = "none"
) -> Profile:
    """Return a profile of two lanes."""
    return parse_profile(_TEXT.format(rps=rps, nodes=nodes, limits=limits, gpus=gpus, spot=spot), source="test")


@cache
def capped() -> Profile:
    """Return a profile whose nodes are too few for small machines alone."""
    free = profile(500, gpus="H100")
    count = sum(lane.replicas for lane in planned(free).lanes)
    return replace(free, capacity=replace(free.capacity, max_nodes=count // 3))


def planned(wanted: Profile, *, with_solver: bool = True) -> Plan:
    """Return its plan on what AWS sells."""
    return make_plan(
        wanted, model_card=resolve_model(wanted.model, CATALOGUE), catalogue=CATALOGUE, offerings=SOLD,
        profile_hash="", solve=solve if with_solver else None,
    )  # fmt: skip


def machines(lane: LanePlan) -> dict[str, int]:
    """Return the machines of a lane by type."""
    found: dict[str, int] = {}
    for each in lane.bought(on_demand=lane.on_demand, spot=lane.spot):
        name = each.offering.instance_type
        found[name] = found.get(name, 0) + each.machines
    return found


def taken(plan: Plan) -> dict[str, int]:
    """Return the machines of a plan by type."""
    found: dict[str, int] = {}
    for lane in plan.lanes:
        for name, count in machines(lane).items():
            found[name] = found.get(name, 0) + count
    return found


def assert_whole(plan: Plan, wanted: Profile) -> None:
    """Check that a plan's figures are those of its machines, and that they carry its replicas within limits and caps."""
    assert plan.nodes == sum(taken(plan).values()) <= wanted.capacity.max_nodes
    for lane in plan.lanes:
        bought = lane.bought(on_demand=lane.on_demand, spot=lane.spot)
        assert lane.cost_usd_per_hour == pytest.approx(sum(b.machines * b.offering.price_usd_per_hour for b in bought))
        assert lane.cost_usd_per_hour == pytest.approx(
            lane_cost_usd_per_hour(wanted.lane(lane.lane), lane, lane.replicas)
        )
        for market, count in ((Market.ON_DEMAND, lane.on_demand), (Market.SPOT, lane.spot)):
            carried = sum(b.machines * lane.room_on(b.offering) for b in bought if b.offering.market is market)
            assert carried >= count
        assert sum(count for _, count in lane.replicas_by_offering) == lane.replicas
    for name, most in wanted.capacity.limits.items():
        assert taken(plan).get(name, 0) <= most


def test_a_cap_on_nodes_is_met_with_the_cheapest_mix_of_large_and_small_machines() -> None:
    plan, alone = planned(capped()), planned(capped(), with_solver=False)
    assert_whole(plan, capped())
    assert set(taken(plan)) == {"p5.4xlarge", "p5.48xlarge"}
    assert plan.cost_usd_per_hour < alone.cost_usd_per_hour
    assert any(lane.mix for lane in plan.lanes)
    assert any("p5.48xlarge" in reason and "p5.4xlarge" in reason for lane in plan.lanes for reason in lane.reasons)


@pytest.mark.parametrize("spot", ["none", "burst"])
def test_lanes_share_a_limit_and_each_takes_the_kind_that_is_cheapest_for_all(spot: str) -> None:
    free = planned(profile(spot=spot))
    name, count = max(taken(free).items(), key=lambda item: item[1])
    wanted = profile(limits=f"{name}: {count - 2}", spot=spot)
    plan = planned(wanted)
    assert_whole(plan, wanted)
    assert plan.cost_usd_per_hour > free.cost_usd_per_hour


def test_a_limit_that_no_mix_keeps_is_refused_with_its_key_and_one_that_is_misspelt_too() -> None:
    with pytest.raises(InfeasiblePlanError, match=r"capacity\.limits") as refused:
        planned(profile(gpus="H100", limits="p5.4xlarge: 1, p5.48xlarge: 0"))
    assert refused.value.key is not None
    assert refused.value.key[:2] == ("capacity", "limits")
    with pytest.raises(InfeasiblePlanError, match=r"did you mean 'p5\.4xlarge'"):
        planned(profile(limits="p5.4xlrge: 1"))


@cache
def all_options() -> tuple[tuple[Option, ...], ...]:
    """Return every option of each lane of one profile: what limits and caps choose among."""
    wanted = profile(120)
    card = resolve_model(wanted.model, CATALOGUE)
    supply = Supply(card=card, other_models={}, catalogue=CATALOGUE, offerings=SOLD, solve=solve)
    demands = lane_demands(wanted, None)
    return tuple(tuple(lane_options(wanted, lane, demands[lane.name], supply)[0]) for lane in wanted.lanes)


@given(nodes=st.integers(1, 40), limits=st.dictionaries(st.sampled_from(sorted(_TYPES)), st.integers(0, 9)))
@settings(max_examples=60, deadline=None)
def test_no_combination_of_single_types_is_cheaper_than_what_the_program_finds(
    nodes: int, limits: dict[str, int]
) -> None:
    capacity = CapacitySpec(max_nodes=nodes, limits=limits)

    def chosen(solver: Solve | None) -> tuple[Option, ...] | None:
        try:
            return choose_together(capacity, all_options(), head_usd_per_hour=0.0, solve=solver)
        except InfeasiblePlanError:
            return None

    found, alone = chosen(solve), chosen(None)
    if found is None or sum(o.nodes for o in found) > nodes:
        assert alone is None or sum(o.nodes for o in alone) > nodes
        return
    assert not crossed(capacity, found)
    for option in found:
        carried = sum(m.machines * m.offering.replicas_max(option.result.instance.layout.gpus) for m in option.machines)
        assert carried >= option.markets.replicas >= option.result.needed
    if alone is not None and sum(o.nodes for o in alone) <= nodes:
        usd = [sum(o.cost_usd_per_hour for o in each) for each in (found, alone)]
        assert usd[0] <= usd[1] * (1 + MIX_SAVES_MIN) + 1e-6


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_the_solver_finds_what_trying_everything_finds(data: st.DataObject) -> None:
    costs = data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=4))
    most = [data.draw(st.integers(0, 3)) for _ in costs]
    rows = []
    for _ in range(data.draw(st.integers(1, 3))):
        terms = tuple((n, float(data.draw(st.integers(-3, 6)))) for n in range(len(costs)))
        rows.append(LinearConstraint(terms=terms, low=float(data.draw(st.integers(-4, 6))), high=math.inf))
    program = IntegerProgram(costs=tuple(map(float, costs)), most=tuple(map(float, most)), rows=tuple(rows))

    def keeps(values: tuple[int, ...]) -> bool:
        return all(row.low <= sum(c * values[n] for n, c in row.terms) <= row.high for row in rows)

    def cost(values: tuple[int, ...]) -> float:
        return sum(c * v for c, v in zip(costs, values, strict=True))

    lawful = [v for v in product(*(range(m + 1) for m in most)) if keeps(v)]
    found = solve(program)
    if found is None:
        assert not lawful
        return
    assert keeps(found)
    assert cost(found) == min(map(cost, lawful))


def launched(lane: LanePlan, count: int, capacity: CapacitySpec) -> list[Replica]:
    """Return a lane's replicas as they are launched one by one, each where there is room, else on a machine of its own."""
    live: list[Replica] = []
    for number in range(count):
        own = {record.machine_id: record for record in live}
        sold = {offering.key: offering for offering in SOLD}
        roomy = [
            r for r in own.values() if sum(o.machine_id == r.machine_id for o in live) < lane.room_on(sold[r.offering])
        ]
        if roomy:
            where, machine = sold[roomy[0].offering], roomy[0].machine_id
        else:
            ranking = ranked_offerings(
                lane, live, Market.ON_DEMAND, SOLD, capacity=capacity, avoid=frozenset(), hazards=NOTHING_LEARNED,
                may_fall_back=True, most=3,
            )  # fmt: skip
            if not ranking.offerings:
                break
            where, machine = ranking.offerings[-1], f"i-{number}"  # the provider may give any of them
        record = samples.replica(f"r{number}", state=ReplicaState.READY, market=Market.ON_DEMAND)
        live.append(
            replace(record, lane=lane.lane, offering=where.key, gpu=where.gpu, machine_id=machine, gpu_indices=(0,))
        )
    return live


def test_a_mix_is_launched_as_it_was_planned_and_a_limit_is_never_passed() -> None:
    lane, capacity = next(lane for lane in planned(capped()).lanes if lane.mix), capped().capacity
    live = launched(lane, lane.replicas, capacity)
    assert by_type(live) == machines(lane)
    assert machine_count(live) == lane.nodes
    limits = {"p5.4xlarge": 2, "p5.48xlarge": 1}
    held = launched(lane, 60, replace(capacity, limits=limits))
    assert by_type(held) == limits
    placement = next_offering(lane, held, Market.ON_DEMAND, SOLD, capacity=replace(capacity, limits=limits))
    assert placement.offering is None
    assert RejectionCode.TYPE_MAX in {each.code for each in placement.rejected.values()}
    assert "capacity.limits" in placement.reason

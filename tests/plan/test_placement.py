"""Where the next replica goes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hypothesis import given, strategies as st

from fleetctl.catalogue.known import resolve_model
from fleetctl.core.hazard import NOTHING_LEARNED, Hazards
from fleetctl.core.placement import RejectionCode, next_offering, possible_offerings, ranked_offerings, ruled_out
from fleetctl.core.plan.instances import instances
from fleetctl.errors import InfeasiblePlanError
from fleetctl.model.catalogue import Market, Offering, OfferingKey
from fleetctl.model.hazard import OfferingRecord
from fleetctl.model.profile import CapacitySpec
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.testing import samples
from tests.plan.profiles import CATALOGUE, OFFERINGS, only_lane, profile_with

if TYPE_CHECKING:
    from collections.abc import Iterator

CARD = resolve_model(profile_with(rps=20).model, CATALOGUE)
LANE = only_lane(profile_with(rps=20, spot="burst"))
FREE = CapacitySpec(max_nodes=100)


def standing(offering: Offering, number: int, *, state: ReplicaState = ReplicaState.READY) -> Replica:
    return samples.replica(
        id=f"all-{number}", lane="all", offering=offering.key, gpu=offering.gpu, market=offering.market,
        price_usd_per_hour=offering.price_usd_per_hour, state=state,
    )  # fmt: skip


def launched(count: int, market: Market, capacity: CapacitySpec = FREE) -> list[Offering]:
    found: list[Offering] = []
    for _ in range(count):
        live = tuple(standing(o, i) for i, o in enumerate(found))
        placement = next_offering(LANE, live, market, OFFERINGS, capacity=capacity)
        if placement.offering is None:
            break
        found.append(placement.offering)
    return found


def test_replicas_are_spread_over_the_zones() -> None:
    zones = [offering.zone for offering in launched(6, Market.SPOT)]
    assert sorted(zones.count(zone) for zone in set(zones)) == [3, 3]


def test_the_planned_gpu_and_market_are_kept() -> None:
    picks = launched(4, Market.SPOT)
    assert {(o.gpu, o.market) for o in picks} == {(LANE.gpu, Market.SPOT)}


def test_a_plan_of_before_emulated_offerings_were_marked_goes_on_and_never_takes_this_machines_own_gpus() -> None:
    emulated = replace(OFFERINGS[0], gpu=LANE.gpu, market=Market.ON_DEMAND, is_emulated=True)
    own = replace(emulated, zone="this-machine", is_emulated=False, pool_gpus=4, price_usd_per_hour=0.0)
    before = replace(LANE, offering=replace(emulated, is_emulated=False))
    marked, real = replace(LANE, offering=emulated), replace(LANE, offering=own)
    for plan, expected in ((before, emulated), (marked, emulated), (real, own)):
        placement = next_offering(plan, (), Market.ON_DEMAND, (own, emulated), capacity=FREE)
        assert placement.offering == expected


def test_an_offering_out_of_stock_is_passed_over_and_said() -> None:
    first = launched(1, Market.SPOT)[0]
    placement = next_offering(LANE, (), Market.SPOT, OFFERINGS, capacity=FREE, avoid={first.key})
    assert placement.offering is not None
    assert placement.offering.key != first.key
    assert placement.rejected[first.key].code is RejectionCode.NO_STOCK


def test_spot_spreads_even_into_a_dearer_zone_and_on_demand_less_so() -> None:
    near = replace(OFFERINGS[0], zone="near", price_usd_per_hour=1.0)
    far = replace(near, zone="far", price_usd_per_hour=1.6)
    for market, expected in ((Market.SPOT, "far"), (Market.ON_DEMAND, "near")):
        sold = tuple(replace(o, market=market) for o in (near, far))
        plan = replace(LANE, gpu=near.gpu)
        placement = next_offering(plan, (standing(sold[0], 1),), market, sold, capacity=FREE)
        assert placement.offering is not None
        assert placement.offering.zone == expected


def test_nothing_is_placed_beyond_the_caps_and_the_reason_says_which() -> None:
    assert len(launched(10, Market.ON_DEMAND, CapacitySpec(max_nodes=3))) == 3
    dear = launched(10, Market.ON_DEMAND, CapacitySpec(max_nodes=100, max_cost_usd_per_hour=4.0))
    assert len(dear) == 2
    live = tuple(standing(o, i) for i, o in enumerate(dear))
    refused = next_offering(
        LANE, live, Market.ON_DEMAND, OFFERINGS, capacity=CapacitySpec(max_nodes=100, max_cost_usd_per_hour=4.0)
    )
    assert refused.offering is None
    assert "over $4.00" in refused.reason


def test_a_cap_on_what_would_fit_is_named_before_offerings_that_never_could() -> None:
    other = tuple(replace(o, gpu="B300", zone=f"z{i}") for i, o in enumerate(OFFERINGS))
    fitting = next(o for o in OFFERINGS if o.gpu == LANE.gpu and o.market is Market.SPOT)
    refused = next_offering(LANE, (), Market.SPOT, (*other, fitting), capacity=FREE, avoid={fitting.key})
    assert refused.offering is None
    assert refused.reason.endswith("could not be had lately")
    assert {rejection.code for rejection in refused.rejected.values()} == {
        RejectionCode.MARKET,
        RejectionCode.GPU,
        RejectionCode.NO_STOCK,
    }


def test_ended_replicas_free_their_node_and_their_money() -> None:
    ended = tuple(standing(o, i, state=ReplicaState.GONE) for i, o in enumerate(launched(3, Market.ON_DEMAND)))
    placement = next_offering(LANE, ended, Market.ON_DEMAND, OFFERINGS, capacity=CapacitySpec(max_nodes=1))
    assert placement.offering is not None


@given(
    order=st.permutations(OFFERINGS),
    live=st.lists(st.sampled_from(OFFERINGS), max_size=12),
    market=st.sampled_from(list(Market)),
    nodes=st.integers(1, 12),
    money=st.floats(0.5, 40),
)
def test_a_pick_is_lawful_and_does_not_depend_on_the_order_of_offers(
    order: list[Offering], live: list[Offering], market: Market, nodes: int, money: float
) -> None:
    capacity = CapacitySpec(max_nodes=nodes, max_cost_usd_per_hour=money)
    replicas = tuple(standing(o, i) for i, o in enumerate(live))
    placement = next_offering(LANE, replicas, market, order, capacity=capacity)
    assert placement == next_offering(LANE, replicas, market, OFFERINGS, capacity=capacity)
    pick = placement.offering
    assert len(placement.rejected) + (pick is not None) <= len(OFFERINGS)
    if pick is not None:
        assert pick.market is market
        assert pick.gpu == LANE.gpu
        assert pick.gpu_count >= LANE.tensor_parallel
        assert len(replicas) < nodes
        assert sum(r.price_usd_per_hour for r in replicas) + pick.price_usd_per_hour <= money + 1e-6


@given(
    gpus=st.sets(st.sampled_from(sorted({o.gpu for o in OFFERINGS}))),
    region=st.sampled_from(["", "elsewhere", OFFERINGS[0].region]),
    zones=st.sets(st.sampled_from(sorted({o.zone for o in OFFERINGS}))),
)
def test_planning_and_placing_keep_to_the_same_rules(gpus: set[str], region: str, zones: set[str]) -> None:
    capacity = CapacitySpec(max_nodes=100, gpus=tuple(gpus), region=region, zones=tuple(zones))
    profile = profile_with(rps=20, spot="burst")
    try:
        planned = instances(
            profile.lanes[0], profile.model, CARD, capacity=capacity, catalogue=CATALOGUE, offerings=OFFERINGS
        )
    except InfeasiblePlanError:
        planned = ()
    allowed = {o.key for o in OFFERINGS if ruled_out(o, capacity) is None}
    assert {o.key for i in planned for o in (i.on_demand, i.spot) if o} <= allowed
    assert {i.cheapest.instance_type for i in planned} == {o.instance_type for o in OFFERINGS if o.key in allowed}
    rules = (RejectionCode.GPU, RejectionCode.REGION, RejectionCode.ZONE)
    for market in Market:
        placed = next_offering(LANE, (), market, OFFERINGS, capacity=capacity)
        fitting = {o.key for o in OFFERINGS if o.market is market and o.gpu == LANE.gpu and o.key in allowed}
        assert (placed.offering is not None) == bool(fitting)
        assert placed.offering is None or placed.offering.key in fitting
        ours = {o.key for o in OFFERINGS if o.market is market and o.gpu == LANE.gpu}
        assert {k for k, r in placed.rejected.items() if r.code in rules and k in ours} == ours - allowed


@given(
    instance_type=st.text("abc/.-1", min_size=1),
    zone=st.text("abc-1", min_size=1),
    market=st.sampled_from(list(Market)),
)
def test_an_offerings_name_is_taken_apart_as_it_was_put_together(instance_type: str, zone: str, market: Market) -> None:
    offering = replace(OFFERINGS[0], instance_type=instance_type, zone=zone, market=market)
    key = OfferingKey.parse(offering.key)
    assert key == (instance_type, zone, market.value)
    assert str(key) == offering.key
    replica = standing(offering, 1)
    assert replica.zone == zone


def test_a_name_in_another_shape_has_no_zone() -> None:
    assert OfferingKey.parse("a-machine") == ("a-machine", "", "")
    assert OfferingKey.parse("").zone == ""


def learned_of(records: dict[str, OfferingRecord], *, after_s: float = 7200.0) -> Hazards:
    return Hazards(now=samples.EPOCH + timedelta(seconds=after_s), records=records)


def in_zones(*zones: str) -> tuple[Offering, ...]:
    near = next(o for o in OFFERINGS if o.gpu == LANE.gpu and o.market is Market.SPOT)
    return tuple(replace(near, zone=zone) for zone in zones)


def test_the_zone_that_was_just_lost_is_passed_over_until_a_while_has_passed() -> None:
    sold = in_zones("calm", "lost")
    record = OfferingRecord(as_of=samples.EPOCH, held_h=9.0, losses=1.0, lost_at=samples.EPOCH)
    full = tuple(standing(sold[0], number) for number in range(3))
    for after_s, zone in ((300.0, "calm"), (900.0, "lost")):
        hazards = learned_of({sold[1].key: record}, after_s=after_s)
        placed = next_offering(LANE, full, Market.SPOT, sold, capacity=FREE, hazards=hazards)
        assert placed.offering is not None
        assert placed.offering.zone == zone


def test_a_zone_just_lost_is_taken_only_where_no_other_is_left_and_never_to_give_back_a_fallback() -> None:
    spot = in_zones("lost")
    on_demand = replace(spot[0], market=Market.ON_DEMAND)
    hazards = learned_of(
        {spot[0].key: OfferingRecord(as_of=samples.EPOCH, losses=1.0, lost_at=samples.EPOCH)}, after_s=60
    )
    for sold, may_fall_back, zone in (
        ((*spot, *in_zones("calm"), on_demand), True, "calm"),
        ((*spot, on_demand), True, "lost"),
        ((*spot, on_demand), False, None),
    ):
        found = ranked_offerings(
            LANE, (), Market.SPOT, sold,
            capacity=FREE, avoid=frozenset(), hazards=hazards, may_fall_back=may_fall_back, most=2,
        )  # fmt: skip
        assert [(o.market, o.zone) for o in found.offerings] == ([(Market.SPOT, zone)] if zone else [])
        assert found.offerings or "lost a node" in found.reason


def test_among_equal_prices_the_safer_zone_is_taken() -> None:
    sold = in_zones("risky", "safe")
    records = {
        sold[0].key: OfferingRecord(as_of=samples.EPOCH, held_h=20.0, losses=8.0),
        sold[1].key: OfferingRecord(as_of=samples.EPOCH, held_h=100.0),
    }
    placed = next_offering(LANE, (standing(sold[1], 1),), Market.SPOT, sold, capacity=FREE, hazards=learned_of(records))
    assert placed.offering is not None
    assert placed.offering.zone == "safe"
    assert "hazard" in placed.reason


def test_where_no_spot_has_stock_it_is_on_demand() -> None:
    spot = in_zones("lost", "calm")
    on_demand = replace(spot[0], market=Market.ON_DEMAND)
    found = ranked_offerings(
        LANE, (), Market.SPOT, (*spot, on_demand),
        capacity=FREE, avoid=frozenset(o.key for o in spot), hazards=learned_of({}), may_fall_back=True, most=2,
    )  # fmt: skip
    assert found.offerings == (on_demand,)


def test_spot_on_a_larger_machine_is_not_bought_where_the_right_one_is_cheaper_on_demand() -> None:
    spot = replace(in_zones("lost")[0], price_usd_per_hour=0.74)
    on_demand = replace(spot, market=Market.ON_DEMAND, price_usd_per_hour=1.86)
    larger = replace(spot, instance_type="larger.4x", zone="calm", gpu_count=spot.gpu_count * 4, price_usd_per_hour=4.2)
    hazards = learned_of({}, after_s=60.0).after_losses([spot.key])
    for sold, avoid, taken in (
        ((spot, on_demand, larger), frozenset[str](), spot),
        ((spot, on_demand, larger), frozenset({spot.key}), on_demand),
        ((spot, on_demand, larger), frozenset({spot.key, on_demand.key}), larger),
        ((spot, larger), frozenset[str](), larger),
    ):
        found = ranked_offerings(
            LANE, (), Market.SPOT, sold,
            capacity=FREE, avoid=avoid, hazards=hazards, may_fall_back=True, most=1,
        )  # fmt: skip
        assert found.offerings == (taken,)


def test_where_an_order_is_late_another_goes_elsewhere_and_there_again_only_where_nothing_else_is_sold() -> None:
    sold = in_zones("late", "calm")
    on_demand = replace(sold[0], market=Market.ON_DEMAND)
    for offerings, late, taken in (
        (sold, sold[:1], sold[1]),
        ((*sold, on_demand), sold, on_demand),
        (sold[:1], sold[:1], sold[0]),
    ):
        found = ranked_offerings(
            LANE, (), Market.SPOT, offerings,
            capacity=FREE, avoid=frozenset(), hazards=learned_of({}), may_fall_back=True, most=1,
            late=frozenset(o.key for o in late),
        )  # fmt: skip
        assert found.offerings == (taken,)


FITS = next(
    o for o in OFFERINGS if o.gpu == LANE.gpu and o.gpu_count >= LANE.tensor_parallel and o.market is Market.ON_DEMAND
)


def test_what_a_dearer_pick_passed_over_is_named_with_its_price_and_its_reason() -> None:
    dear = replace(FITS, instance_type="dear.1x", price_usd_per_hour=9.0)
    cheap = replace(dear, instance_type="cheap.1x", price_usd_per_hour=0.74)
    found = next_offering(LANE, (), dear.market, (dear, cheap), capacity=FREE, avoid={cheap.key})
    assert found.offering == dear
    assert f"{cheap.key} ($0.74/h) could not be had lately" in found.passed_over
    assert found.score.startswith("1.00 = ")


def test_what_was_passed_over_stays_short_however_much_is_on_offer() -> None:
    many = tuple(replace(FITS, instance_type=f"type-{n}", zone=f"z{n}") for n in range(500))
    found = next_offering(LANE, (), many[0].market, many, capacity=FREE, avoid={o.key for o in many[100:]})
    assert len(found.passed_over) < 1000
    assert "scored" in found.passed_over
    assert ", and 399 more" in found.passed_over


class CountedOfferings(list[Offering]):
    """What is on offer, and how often all of it was looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Offering]:
        self.looks += 1
        return super().__iter__()


def region_of(types: int) -> CountedOfferings:
    """Return a region's offerings: every second type has the lane's GPU."""
    return CountedOfferings(
        replace(
            samples.offering(market=market),
            instance_type=f"type-{number}",
            gpu="L40S" if number % 2 else "H100",
            zone=zone,
            price_usd_per_hour=(1 + number / 10) * (0.4 if market is Market.SPOT else 1.0),
        )
        for number in range(types)
        for zone in ("zone-a", "zone-b")
        for market in Market
    )


def test_a_ranking_looks_at_all_that_is_on_offer_a_few_times_however_many_it_names() -> None:
    on_offer = region_of(30)
    lane = samples.lane_plan("long", on_demand=1, spot=1)
    common: dict[str, Any] = {
        "capacity": CapacitySpec(),
        "avoid": frozenset[str](),
        "hazards": NOTHING_LEARNED,
        "may_fall_back": True,
    }
    found = ranked_offerings(lane, [], Market.SPOT, on_offer, most=20, **common)
    assert len(found.offerings) == 20
    assert on_offer.looks <= 8
    one_by_one: list[Offering] = []
    while len(one_by_one) < 20:
        avoid = {o.key for o in one_by_one}
        picked = next_offering(lane, [], Market.SPOT, on_offer, capacity=CapacitySpec(), avoid=avoid).offering
        assert picked is not None
        one_by_one.append(picked)
    assert list(found.offerings) == one_by_one, "each is the pick among those that are left"
    possible = possible_offerings(lane, on_offer, CapacitySpec())
    assert {o.gpu for o in possible} == {"L40S"}
    assert ranked_offerings(lane, [], Market.SPOT, possible, most=20, **common).offerings == found.offerings


def test_where_nothing_on_offer_could_carry_a_lane_all_is_kept_to_say_why() -> None:
    sold = [replace(o, gpu="H100") for o in region_of(2)]
    lane = samples.lane_plan("long", on_demand=1)
    assert possible_offerings(lane, sold, CapacitySpec()) == sold

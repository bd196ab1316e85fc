"""Spot capacity: a noticed replica serves on, a fallback is given back, the baseline and the caps are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.core.disruption import finish_s, scale_down_order
from fleetctl.model.catalogue import Market, Precision
from fleetctl.model.decision import DrainReplica, LaneMemory, LaunchReplica, Memory, StopReplica
from fleetctl.model.gateway import LaneWindow
from fleetctl.model.hazard import OfferingRecord
from fleetctl.model.node import Notice, NoticeKind
from fleetctl.model.profile import CapacitySpec, ControlSpec, Mode, ReplicaBounds, SpotPolicy
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaCapacity, ReplicaState
from fleetctl.testing import samples
from tests.reconcile import worlds
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, reason_of

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation, ObservedReplica

ZONES = ("zone-a", "zone-b")
SPOT = tuple(samples.offering(market=Market.SPOT, zone=zone) for zone in ZONES)
SOLD = (*SPOT, samples.offering())
CAPACITY = ReplicaCapacity(max_model_len=8192, max_num_seqs=64, precision=Precision.BF16, continues_streams=True)


def spot_lane(on_demand: int, spot: int, *, most: int = 8, **changes: Any) -> Desired:
    lane = worlds.lane_spec(spot=SpotPolicy.BURST, replicas=ReplicaBounds(min=1, max=most))
    return worlds.desired(lane, counts={"short": (on_demand, spot)}, **changes)


def on_spot(replica_id: str, zone: str = "zone-a", **changes: Any) -> ObservedReplica:
    offering = f"g6e.xlarge/{zone}/spot"
    return observed(
        replica_id,
        record_market=Market.SPOT,
        record_price_usd_per_hour=0.7444,
        record_offering=offering,
        **changes,
    )


def settled(wanted: int, **changes: Any) -> Memory:
    return Memory(lanes={"short": LaneMemory(wanted=wanted, planned=wanted, requested=wanted)}, **changes)


def seen(*replicas: ObservedReplica, **changes: Any) -> Observation:
    return observation(*replicas, offerings=SOLD, **changes)


def test_a_noticed_replica_serves_on_while_its_substitute_is_ordered_in_the_same_tick():
    noticed = on_spot("r1", notice_deadline=at(3720), in_flight=3)
    decision = decide(spot_lane(1, 1), seen(noticed, observed("r2")), settled(2))
    assert [type(a) for a in decision.actions] == [LaunchReplica]
    assert of_kind(decision, LaunchReplica)[0].replaces == "r1"
    assert "r1 serves for 1m41s more" in reason_of(decision, "short")
    # The next tick has nothing to add.
    assert (
        decide(
            spot_lane(1, 1), worlds.after(seen(noticed, observed("r2")), decision, spot_lane(1, 1)), decision.memory
        ).actions
        == ()
    )


def test_it_leaves_rotation_as_soon_as_its_substitute_is_ready():
    noticed = on_spot("r1", notice_deadline=at(3720))
    ready = on_spot("r3", zone="zone-b")
    (drain,) = of_kind(decide(spot_lane(1, 1), seen(noticed, observed("r2"), ready), settled(2)), DrainReplica)
    assert (drain.replica_id, drain.code) == ("r1", ReasonCode.SPOT_NOTICE)
    assert "2 others serve" in drain.reason


@pytest.mark.parametrize(
    ("continues", "e2e_s", "leaves_before_s"),
    [
        (False, None, 19.0),
        (False, 4.0, 14.0),
        (False, 500.0, 110.0),
        (True, None, 19.0),
        (True, 4.0, 14.0),
        (True, 50.0, 20.0),
    ],
)
def test_it_leaves_rotation_in_time_for_its_streams(continues, e2e_s, leaves_before_s):
    window = LaneWindow(seconds=300.0, e2e=worlds.quantiles(e2e_s) if e2e_s else worlds.quantiles(0.0, 0))
    lane = replace(worlds.traffic("short"), windows=(window,))
    fleet = spot_lane(0, 1, control=ControlSpec(drain_timeout_s=100.0))
    capacity = replace(CAPACITY, continues_streams=continues)
    for early_s, is_out in ((1.0, False), (0.0, True)):
        noticed = on_spot("r1", record_capacity=capacity, notice_deadline=at(3600 + leaves_before_s + early_s))
        decision = decide(fleet, seen(noticed, gateway=worlds.snapshot(lane)), settled(1))
        assert bool(of_kind(decision, DrainReplica)) is is_out


def test_a_stream_is_given_no_longer_than_a_drain_may_take():
    assert finish_s(samples.replica(), 900.0, drain_timeout_s=30.0) == 30.0


def test_a_noticed_one_that_falls_ill_is_drained_and_not_waited_for():
    noticed = on_spot("r1", notice_deadline=at(3720), consecutive_failures=3)
    assert of_kind(decide(spot_lane(1, 1), seen(noticed, observed("r2")), settled(2)), DrainReplica)


def fallback(replica_id: str = "r9", **changes: Any) -> ObservedReplica:
    return observed(replica_id, **changes)


def test_an_on_demand_fallback_gets_a_spot_substitute_that_never_falls_back():
    fleet = spot_lane(1, 1)
    world = seen(observed("r1"), fallback())
    decision = decide(fleet, world, settled(2))
    (launch,) = of_kind(decision, LaunchReplica)
    assert (launch.market, launch.may_fall_back, launch.code) == (Market.SPOT, False, ReasonCode.SPOT_AGAIN)
    assert launch.replaces == "r9"
    assert "hazard 0.1/h" in launch.reason
    after = worlds.after(world, decision, fleet)
    assert decide(fleet, after, decision.memory).actions == ()
    starting = on_spot("r10", state=ReplicaState.BOOTING, record_replaces="r9")
    assert decide(fleet, seen(observed("r1"), fallback(), starting), decision.memory).actions == ()
    served = decide(fleet, seen(observed("r1"), fallback(), on_spot("r10")), decision.memory)
    (drain,) = of_kind(served, DrainReplica)
    assert drain.replica_id == "r9"
    assert "beyond the on-demand baseline of 1" in drain.reason


@pytest.mark.parametrize("replaces", ["", "r1", "r7"])
def test_what_starts_on_spot_in_nobodys_place_does_not_take_a_lane_over_its_maximum(replaces):
    starting = on_spot("r10", state=ReplicaState.BOOTING, record_replaces=replaces)
    world = seen(observed("r1"), fallback(), starting)
    decision = decide(spot_lane(1, 1, most=2), world, settled(2))
    assert [stop.replica_id for stop in of_kind(decision, StopReplica)] == ["r10"]
    assert not of_kind(decision, DrainReplica), "the fallback serves until its substitute does"
    assert [launch.replaces for launch in of_kind(decision, LaunchReplica)] == ["r9"]
    assert decide(spot_lane(1, 1, most=3), world, settled(2)).actions == ()


def test_a_substitute_stands_beside_its_fallback_at_the_lanes_maximum():
    starting = on_spot("r10", state=ReplicaState.BOOTING, record_replaces="r9")
    assert decide(spot_lane(1, 1, most=2), seen(observed("r1"), fallback(), starting), settled(2)).actions == ()


@pytest.mark.parametrize(
    "change",
    [
        {"refused_offerings": {o.key: at(3500) for o in SPOT}},
        {"offerings": SOLD[2:]},
    ],
)
def test_no_substitute_is_ordered_while_no_spot_is_to_be_had(change):
    world = replace(seen(observed("r1"), fallback()), **change)
    assert decide(spot_lane(1, 1), world, settled(2)).actions == ()


def test_a_zone_that_flaps_is_left_alone_for_longer_each_time():
    fleet, world = spot_lane(0, 1), seen(fallback())
    waits = []
    for losses in (1.0, 2.0, 3.0):
        record = OfferingRecord(as_of=at(3600), losses=losses, lost_at=at(3600))
        memory = settled(1, offerings={o.key: record for o in SPOT})
        ages = range(0, 7200, 60)
        waits.append(next(age for age in ages if decide(fleet, replace(world, at=at(3600 + age)), memory).actions))
    assert waits == [600, 1200, 2400]


def test_caps_leave_no_room_for_a_substitute_and_the_fallback_stays():
    fleet = spot_lane(1, 1, capacity=CapacitySpec(max_nodes=2))
    assert decide(fleet, seen(observed("r1"), fallback()), settled(2)).actions == ()


def test_shadow_mode_gives_nothing_back():
    fleet = spot_lane(1, 1, mode=Mode.SHADOW)
    assert decide(fleet, seen(observed("r1"), fallback()), settled(2)).actions == ()


def test_where_no_zone_has_stock_the_substitute_is_bought_on_demand_and_the_reason_says_why():
    world = seen(observed("r1"), refused_offerings={o.key: at(3500) for o in SPOT})
    (launch,) = of_kind(decide(spot_lane(1, 1), world, settled(2)), LaunchReplica)
    assert launch.market is Market.ON_DEMAND
    assert "no spot offering fits: could not be had lately" in launch.reason


def test_what_stands_in_for_spot_goes_before_spot_the_dearest_first_and_a_noticed_one_before_all():
    replicas = [
        observed("r1"),
        fallback("r2", record_price_usd_per_hour=2.0),
        fallback("r3", record_price_usd_per_hour=5.0),
        on_spot("r4"),
        on_spot("r5", notice=Notice(kind=NoticeKind.REBALANCE, deadline=None, is_certain=False)),
        on_spot("r6", state=ReplicaState.BOOTING),
    ]
    order = [r.record.id for r in scale_down_order(replicas, baseline=1)]
    assert order == ["r5", "r3", "r2", "r6", "r4", "r1"]


records = st.builds(
    OfferingRecord,
    as_of=st.floats(0, 3600).map(at),
    held_h=st.floats(0, 50),
    losses=st.floats(0, 9),
    refusals=st.floats(0, 9),
    lost_at=st.none() | st.floats(0, 3600).map(at),
)


@st.composite
def lanes_on_spot(draw: st.DrawFn) -> list[ObservedReplica]:
    found = []
    for number in range(draw(st.integers(0, 7))):
        state = draw(st.sampled_from([s for s in ReplicaState if s.is_live]))
        make = on_spot if draw(st.booleans()) else fallback
        found.append(
            make(
                f"r{number}",
                state=state,
                notice_deadline=draw(st.none() | st.floats(3590, 3720).map(at)),
                record_created_at=at(draw(st.floats(0, 3600))),
            )
        )
    return found


@settings(deadline=None, max_examples=150)
@given(
    lanes_on_spot(),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.dictionaries(st.sampled_from([o.key for o in SPOT]), records),
    st.sets(st.sampled_from([o.key for o in SPOT])),
    st.integers(1, 10),
)
def test_whatever_the_market_does_caps_and_baseline_are_kept_and_no_fallback_is_exchanged_twice(
    replicas, counts, offerings, refused, nodes
):
    fleet = spot_lane(*counts, capacity=CapacitySpec(max_nodes=nodes))
    wanted = max(1, sum(counts))
    memory = replace(settled(wanted, offerings=offerings))
    memory = replace(memory, lanes={"short": replace(memory.lanes["short"], planned=sum(counts))})
    world = seen(*replicas, refused_offerings=dict.fromkeys(refused, at(3500)))
    decision = decide(fleet, world, memory)
    launches = of_kind(decision, LaunchReplica)
    after = worlds.after(world, decision, fleet)
    if launches:
        assert sum(r.record.state.is_live for r in after.replicas) <= nodes
    exchanged = [launch.replaces for launch in launches if not launch.may_fall_back]
    assert len(exchanged) == len(set(exchanged))
    # Nobody serving on demand within the baseline is given up while the lane wants it.
    given_up = {a.replica_id for a in of_kind(decision, DrainReplica) if a.code is ReasonCode.REPLICA_EXCESS}
    serving = [r for r in replicas if r.record.state is ReplicaState.READY and r.notice_deadline is None]
    on_demand = [r for r in serving if r.record.market is Market.ON_DEMAND]
    left = [r for r in on_demand if r.record.id not in given_up]
    assert len(left) >= min(len(on_demand), counts[0], wanted)
    # What serves after it is all that served and is wanted.
    assert len(serving) - len(given_up & {r.record.id for r in serving}) >= min(len(serving), wanted)
    again = decide(fleet, after, decision.memory)
    assert again.actions == ()


def test_who_serves_and_is_wanted_stays_while_what_starts_serves_nobody():
    replicas = [fallback(), *(on_spot(f"r{n}", state=ReplicaState.BOOTING) for n in (2, 3, 4))]
    drains = of_kind(decide(spot_lane(0, 1), seen(*replicas), settled(1)), DrainReplica)
    assert drains == []

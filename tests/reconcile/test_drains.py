"""Cordoned zones and nodes: their replicas leave as others serve, nothing is launched there, and drains are taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.core.placement import RejectionCode, next_offering
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import DrainReplica, LaneMemory, LaunchReplica, Memory, StopReplica, UndrainReplica
from fleetctl.model.desired import Cordon, Overrides, Terms
from fleetctl.model.profile import CapacitySpec
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.testing import samples
from tests.reconcile.worlds import after, at, decide, observation, observed, of_kind, one_lane, reason_of

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import ObservedReplica

SETTLED = Memory(lanes={"short": LaneMemory(wanted=2, planned=2)})
ZONE_A = samples.offering(zone="a")
ZONE_B = samples.offering(zone="b")


def cordoned(target: str = "zone/a", *, now: bool = False, **changes: Any) -> Desired:
    cordon = Cordon(terms=Terms(by="alice", since=at(3000.0)), is_immediate=now)
    return one_lane(overrides=Overrides(cordons={target: cordon}), **changes)


def in_zone(replica_id: str, zone: str, **changes: Any) -> ObservedReplica:
    return observed(replica_id, record_offering=samples.offering(zone=zone).key, **changes)


def drained(decision: Any) -> list[str]:
    return [action.replica_id for action in of_kind(decision, DrainReplica)]


def test_replacements_are_launched_first_and_all_serve_on_meanwhile():
    decision = decide(cordoned(), observation(in_zone("r1", "a"), in_zone("r2", "a")), SETTLED)
    assert drained(decision) == []
    assert len(of_kind(decision, LaunchReplica)) == 2
    assert "r1 leaves once another serves in its stead" in reason_of(decision, "short")


def test_each_leaves_as_one_serves_in_its_stead():
    seen = observation(in_zone("r1", "a"), in_zone("r2", "a"), in_zone("r3", "b"))
    assert drained(decide(cordoned(), seen, SETTLED)) == ["r1"]
    seen = observation(*(in_zone(f"r{n}", zone) for n, zone in enumerate("aabb", 1)))
    assert drained(decide(cordoned(), seen, SETTLED)) == ["r1", "r2"]


def test_nobody_leaves_where_the_caps_let_nobody_come():
    decision = decide(
        cordoned(capacity=CapacitySpec(max_nodes=2)), observation(in_zone("r1", "a"), in_zone("r2", "a")), SETTLED
    )
    assert drained(decision) == []
    assert of_kind(decision, LaunchReplica) == []


def test_at_once_means_all_but_the_last_in_rotation():
    decision = decide(cordoned(now=True), observation(in_zone("r1", "a"), in_zone("r2", "a")), SETTLED)
    assert drained(decision) == ["r2"]
    decision = decide(cordoned(now=True), observation(in_zone("r1", "a"), in_zone("r2", "b")), SETTLED)
    assert drained(decision) == ["r1"]


def test_what_boots_there_is_ended():
    seen = observation(in_zone("r1", "b"), in_zone("r2", "a", state=ReplicaState.BOOTING))
    decision = decide(cordoned(), seen, SETTLED)
    assert [stop.replica_id for stop in of_kind(decision, StopReplica)] == ["r2"]
    assert len(of_kind(decision, LaunchReplica)) == 1


def test_a_nodes_cordon_takes_what_stood_on_it_and_leaves_what_is_placed_there_later():
    seen = observation(
        observed("r1", record_node_id="n-1"),
        observed("r2"),
        observed("r3"),
        observed("r4", record_machine_id="n-1", record_created_at=at(3500.0)),
    )
    assert drained(decide(cordoned("node/n-1"), seen, SETTLED))[:1] == ["r1"]
    later = observation(observed("r2"), observed("r4", record_machine_id="n-1", record_created_at=at(3500.0)))
    assert drained(decide(cordoned("node/n-1"), later, SETTLED)) == []


def test_nothing_is_placed_in_a_cordoned_zone():
    plan = samples.lane_plan("short")
    placed = next_offering(plan, (), Market.ON_DEMAND, (ZONE_A, ZONE_B), capacity=CapacitySpec(), cordoned={"a"})
    assert placed.offering == ZONE_B
    assert placed.rejected[ZONE_A.key].code is RejectionCode.CORDONED
    nowhere = next_offering(plan, (), Market.ON_DEMAND, (ZONE_A,), capacity=CapacitySpec(), cordoned={"a"})
    assert nowhere.offering is None
    assert "is in zone a, which is cordoned" in nowhere.reason


def draining(**changes: Any) -> ObservedReplica:
    given = {"state": ReplicaState.DRAINING, "record_drain_code": ReasonCode.OPERATOR, "in_flight": 3, **changes}
    return observed("r1", record_drain_requested=True, record_drain_deadline=at(4000.0), **given)


UNDRAINED = Overrides(undrained=("r1",))


def test_a_drain_taken_back_puts_the_replica_back_into_rotation():
    fleet, seen = one_lane(overrides=UNDRAINED), observation(draining(), observed("r2"))
    decision = decide(fleet, seen, SETTLED)
    assert [action.replica_id for action in of_kind(decision, UndrainReplica)] == ["r1"]
    assert of_kind(decision, LaunchReplica) == []
    (back, _) = after(seen, decision, fleet).replicas
    assert (back.record.state, back.record.drain_deadline) == (ReplicaState.READY, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"record_drain_code": ReasonCode.REPLICA_EXCESS},
        {"healthy": False},
        {"consecutive_failures": 3},  # it would be taken out of rotation again by the next decision
        {"notice_deadline": at(3700.0)},
        {"node": None},
    ],
    ids=["another reason", "unhealthy", "requests fail there", "its node is taken", "its node is not shown"],
)
def test_one_that_may_not_serve_goes_on_draining(changes):
    decision = decide(one_lane(overrides=UNDRAINED), observation(draining(**changes), observed("r2")), SETTLED)
    assert of_kind(decision, UndrainReplica) == []


def test_an_ended_cordon_brings_back_what_still_drains():
    seen = observation(
        in_zone("r1", "a", state=ReplicaState.DRAINING, record_drain_code=ReasonCode.OPERATOR, in_flight=2),
        observed("r2"),
    )
    assert len(of_kind(decide(one_lane(), seen, SETTLED), UndrainReplica)) == 1
    assert of_kind(decide(cordoned(), seen, SETTLED), UndrainReplica) == []


@settings(max_examples=150, deadline=None)
@given(
    zones=st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
    wanted=st.integers(1, 6),
    cap=st.integers(1, 12),
)
def test_a_zones_drain_never_leaves_fewer_ready_than_wanted_or_than_there_were(zones, wanted, cap):
    fleet = cordoned(on_demand=wanted, capacity=CapacitySpec(max_nodes=max(cap, len(zones))))
    memory = Memory(lanes={"short": LaneMemory(wanted=wanted, planned=wanted)})
    seen = observation(*(in_zone(f"r{n}", zone) for n, zone in enumerate(zones)))
    decision = decide(fleet, seen, memory)
    left = len(zones) - len(drained(decision))
    assert left >= min(wanted, len(zones))
    assert len(zones) + len(of_kind(decision, LaunchReplica)) <= fleet.profile.capacity.max_nodes

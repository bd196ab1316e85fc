"""What a lane's load needs: by its rate, by where that is going, and by the requests that are under way at once."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.capacity import HeldRequests, held_requests, replicas_holding
from fleetctl.core.engine_load import LaneEngineLoad
from fleetctl.model.arrivals import ArrivalHistory
from fleetctl.model.decision import DrainReplica, LaneMemory, LaunchReplica, Memory
from fleetctl.model.gateway import ReplicaSnapshot
from fleetctl.model.observation import EngineSignals
from fleetctl.model.profile import ControlSpec
from fleetctl.model.slo import Validity
from fleetctl.testing import samples
from tests.reconcile import worlds
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, reason_of, snapshot, traffic

PLAN = samples.lane_plan("short")
FULL = LaneEngineLoad(validity=Validity.OK, running=40, kv_usage_total=1.6)


def test_a_replica_holds_what_the_gateway_found_to_keep_the_itl_or_what_fills_four_fifths_of_its_cache():
    by_plan = held_requests(PLAN, [], LaneEngineLoad())
    assert by_plan == HeldRequests(each=0.8 * PLAN.launch.max_num_seqs, bound="within the ITL")
    assert held_requests(PLAN, [10, 60, 30], LaneEngineLoad()).each == 0.8 * 30
    assert held_requests(PLAN, [60], FULL) == HeldRequests(each=20.0, bound="in the KV cache")
    assert held_requests(PLAN, [20], FULL).bound == "within the ITL"


@given(
    each=st.floats(min_value=1.0, max_value=500.0),
    requests=st.integers(min_value=0, max_value=5000),
    ready=st.integers(min_value=1, max_value=64),
)
def test_need_rises_with_requests_and_with_slowness_and_never_falls_below_what_holds_them(
    each: float, requests: int, ready: int
) -> None:
    held = HeldRequests(each=each, bound="within the ITL")
    need = replicas_holding(held, requests, ready=ready)
    assert need >= math.ceil(requests / each - 1e-6)
    assert need <= replicas_holding(held, requests + 1, ready=ready)
    assert need <= replicas_holding(replace(held, each=max(1.0, 0.9 * each)), requests, ready=ready)


@given(each=st.floats(min_value=1.0, max_value=500.0), requests=st.integers(min_value=1, max_value=5000))
def test_what_is_given_up_is_less_than_the_share_that_is_idle(each: float, requests: int) -> None:
    held = HeldRequests(each=each, bound="within the ITL")
    ready = 2 * math.ceil(requests / each)
    # Twice as many as hold them: those that stay would be slower, and have more of them at once.
    assert replicas_holding(held, requests, ready=ready) >= math.ceil(requests / each - 1e-6)
    assert replicas_holding(held, requests, ready=ready) <= ready


def wanted(memory: LaneMemory, *, in_flight: int = 0, streams_max: int = 50, kv: float = 0.1, **figures: Any) -> Any:
    """Return the count, and why, of a lane of two, from figures that last."""
    fleet = worlds.one_lane(2, control=ControlSpec(scale_up_after_s=0.0))
    engine = EngineSignals(validity=Validity.OK, at=at(3600), running=max(1, in_flight // 2), kv_usage=kv)
    two = tuple(observed(f"r{n}", engine=engine) for n in (1, 2))
    gateway = snapshot(traffic("short", in_flight=in_flight, **figures), now_s=3600)
    replicas = tuple(
        ReplicaSnapshot(id=f"r{n}", in_flight=0, failures=0, consecutive_failures=0, streams_max=streams_max)
        for n in (1, 2)
    )
    boot_s = {fleet.plan.lane("short").offering.key: 120.0}
    seen = observation(*two, gateway=replace(gateway, replicas=replicas), boot_s=boot_s)
    decision = decide(fleet, seen, Memory(lanes={"short": replace(memory, wanted=2, planned=2, requested=2)}))
    return decision, decision.memory.lanes["short"].wanted, reason_of(decision, "short")


def test_more_requests_at_once_than_keep_the_itl_order_a_replica_whatever_the_rate():
    decision, count, reason = wanted(LaneMemory(), in_flight=90, streams_max=50, rps=1.0)
    assert count == 3
    assert of_kind(decision, LaunchReplica)
    assert "90 requests at once, 40 within the ITL of each replica, needs 3" in reason
    assert wanted(LaneMemory(), in_flight=78, streams_max=50, rps=1.0)[1] == 2


def test_a_cache_that_fills_orders_a_replica_before_it_is_full():
    _, count, reason = wanted(LaneMemory(), in_flight=40, kv=0.85, rps=1.0)
    assert count == 3
    assert "40 requests at once, 18.8 in the KV cache of each replica, needs 3" in reason


def test_steady_growth_orders_what_will_be_needed_when_it_is_ready():
    rising = ArrivalHistory(counts=tuple(range(2, 20)), until=at(3595))
    _, count, reason = wanted(LaneMemory(arrivals=rising), rps=1.9)
    assert count == 4
    assert "2 rps and rising, 3.76 in 2m when a new replica serves, needs 4" in reason
    level = ArrivalHistory(counts=(19,) * 18, until=at(3595))
    assert wanted(LaneMemory(arrivals=level), rps=1.9)[1] == 2


def test_what_growth_would_need_orders_replicas_and_is_not_remembered_as_a_need():
    rising = ArrivalHistory(counts=tuple(range(2, 20)), until=at(3595))
    decision, count, _ = wanted(LaneMemory(arrivals=rising), rps=1.9)
    assert count == 4
    assert max(level.need for level in decision.memory.lanes["short"].bursts.levels) < 4


def test_requests_that_come_in_groups_count_as_more():
    groups = ArrivalHistory(counts=(0, 40, 10, 50, 0, 20) * 5, until=at(3595))
    _, count, reason = wanted(LaneMemory(arrivals=groups), rps=2.0)
    assert count > 2
    assert "2 rps offered so unevenly that they count as" in reason


@pytest.mark.parametrize(("in_flight", "given_up"), [(10, True), (35, False)])
def test_replicas_are_given_up_only_where_the_rest_holds_what_was_under_way_at_once(
    in_flight: int, given_up: bool
) -> None:
    fleet = worlds.one_lane(2)
    memory = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})
    drained: list[DrainReplica] = []
    two = (observed("r1"), observed("r2"))
    rows = tuple(
        ReplicaSnapshot(id=r.record.id, in_flight=0, failures=0, consecutive_failures=0, streams_max=40) for r in two
    )
    for second in range(0, 200, 20):
        gateway = snapshot(traffic("short", rps=0.4, in_flight=in_flight), now_s=3600 + second)
        seen = observation(*two, gateway=replace(gateway, replicas=rows), now_s=3600 + second)
        decision = decide(fleet, seen, memory)
        memory, drained = decision.memory, drained + of_kind(decision, DrainReplica)
    assert bool(drained) is given_up

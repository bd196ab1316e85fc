"""No more than half of a lane leaves rotation by choice within a minute, whatever lies about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings, strategies as st

from fleetctl.core.reconcile.disruption_limit import may_leave
from fleetctl.model.decision import DrainReplica, LaneMemory, LaunchReplica, MarkBooting, Memory
from fleetctl.model.desired import Overrides
from fleetctl.model.profile import CapacitySpec
from fleetctl.model.replica import ReplicaState
from tests.reconcile.worlds import after, at, decide, observation, observed, of_kind, one_lane, reason_of

if TYPE_CHECKING:
    from fleetctl.model.observation import Observation

START_S = 3600.0


def memory(wanted: int, **changes: object) -> Memory:
    return Memory(lanes={"short": LaneMemory(wanted=wanted, planned=wanted)}, **changes)  # type: ignore[arg-type]


def ready(seen: Observation) -> int:
    return sum(r.record.state is ReplicaState.READY for r in seen.replicas)


def test_what_is_too_many_leaves_by_halves_a_minute_apart():
    fleet, seen, kept = one_lane(1), observation(*(observed(f"r{n}") for n in range(8))), memory(1)
    counts = []
    for second in (0, 1, 30, 61, 122, 183):
        decision = decide(fleet, seen, kept, now_s=START_S + second)
        seen, kept = after(seen, decision, fleet), decision.memory
        counts.append(ready(seen))
    assert counts == [4, 4, 4, 1, 1, 1]


def test_the_lane_says_what_is_held_back():
    decision = decide(one_lane(1), observation(*(observed(f"r{n}") for n in range(8))), memory(1), now_s=START_S)
    assert "3 more leave later: 4 left by choice within 60s" in reason_of(decision, "short")


def test_a_persons_own_count_is_not_held_back():
    fleet = one_lane(8, overrides=Overrides(replicas={"short": 1}))
    decision = decide(fleet, observation(*(observed(f"r{n}") for n in range(8))), memory(8), now_s=START_S)
    assert len(of_kind(decision, DrainReplica)) == 7


def lying(count: int, *, is_heard: bool) -> Observation:
    """Return a lane whose /health all fail."""
    return observation(*(observed(f"r{n}", healthy=False, unheard_s=0.2 if is_heard else None) for n in range(count)))


def failing_since(count: int) -> Memory:
    return memory(count, unhealthy_since={f"r{n}": at(START_S - 30.0) for n in range(count)})


def test_a_probe_that_lies_about_all_takes_half_of_them_at_most():
    decision = decide(one_lane(6), lying(6, is_heard=True), failing_since(6), now_s=START_S)
    assert len(of_kind(decision, MarkBooting)) == 3
    assert "the gateway hears from them: left in rotation" in reason_of(decision, "short")
    again = decide(
        one_lane(6), after(lying(6, is_heard=True), decision, one_lane(6)), decision.memory, now_s=START_S + 5.0
    )
    assert of_kind(again, MarkBooting) == []


def test_what_the_gateway_does_not_hear_either_is_taken_out_at_once():
    decision = decide(one_lane(6), lying(6, is_heard=False), failing_since(6), now_s=START_S)
    assert len(of_kind(decision, MarkBooting)) == 6


def test_one_alone_is_believed():
    decision = decide(one_lane(1), lying(1, is_heard=True), failing_since(1), now_s=START_S)
    assert len(of_kind(decision, MarkBooting)) == 1


@settings(max_examples=200, deadline=None)
@given(count=st.integers(0, 40), earlier=st.integers(0, 40))
def test_at_most_half_and_always_one_may_leave_within_a_minute(count, earlier):
    lately = LaneMemory(left_at=(at(START_S),) * earlier)
    more = may_leave(lately, count, at(START_S + 1.0))
    assert 0 <= more <= max(1, (count + earlier + 1) // 2)
    assert more + earlier <= max(1, (count + earlier + 1) // 2) or more == 0
    assert may_leave(lately, count, at(START_S + 61.0)) == max(1, (count + 1) // 2)


@settings(max_examples=150, deadline=None)
@given(
    wanted=st.integers(1, 8),
    running=st.integers(0, 8),
    dead=st.integers(0, 4),
    nodes=st.integers(1, 10),
    usd=st.floats(0.5, 20.0),
    set_count=st.none() | st.integers(1, 8),
)
def test_no_decision_crosses_a_cap_on_money_or_nodes(wanted, running, dead, nodes, usd, set_count):
    overrides = Overrides(replicas={} if set_count is None else {"short": set_count})
    fleet = one_lane(wanted, 2, overrides=overrides, capacity=CapacitySpec(max_nodes=nodes, max_cost_usd_per_hour=usd))
    seen = observation(*(observed(f"r{n}", healthy=n >= dead) for n in range(running)))
    decision = decide(fleet, seen, memory(wanted + 2), now_s=START_S)
    launches = of_kind(decision, LaunchReplica)
    plan = fleet.plan.lane("short")
    spot = plan.spot_offering or plan.offering
    price = {"spot": spot.price_usd_per_hour, "on-demand": plan.offering.price_usd_per_hour}
    live = sum(r.record.price_usd_per_hour for r in seen.replicas)
    added = sum(price[launch.market.value] for launch in launches)
    assert not launches or running + len(launches) <= nodes
    assert not launches or live + added <= usd + 1e-6

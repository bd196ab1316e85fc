"""What must hold of every decision, whatever the world."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given, settings, strategies as st

from fleetctl.core.disruption import notice_of
from fleetctl.core.reconcile import reconcile
from fleetctl.model.bursts import BurstMemory, NeedLevel, NeedPeak, Shortfall
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import (
    AdmitReplica,
    DrainReplica,
    LaneMemory,
    LaunchReplica,
    MarkBooting,
    MarkGone,
    Memory,
    SetStep,
    StopOrphanedNode,
    StopReplica,
    WarmReplica,
)
from fleetctl.model.desired import DesiredPhase, Overrides
from fleetctl.model.engine_restart import EngineRestart, RestartPhase
from fleetctl.model.gateway_actions import StartGateway, StopGateway
from fleetctl.model.ladder import LadderStep
from fleetctl.model.node import NodeState
from fleetctl.model.profile import CapacitySpec, Mode, ReplicaBounds
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.restart_action import RestartReplica
from fleetctl.model.slo import Validity
from tests.reconcile import worlds

if TYPE_CHECKING:
    from fleetctl.model.decision import AnyAction, Decision
    from fleetctl.model.desired import Desired
    from fleetctl.model.gateway import LaneSnapshot
    from fleetctl.model.observation import Observation, ObservedReplica

NOW_S = 3600.0
OF_ONE_REPLICA = (WarmReplica, AdmitReplica, DrainReplica, StopReplica, MarkGone, MarkBooting, RestartReplica)

instants = st.none() | st.floats(0, NOW_S).map(worlds.at)


ids = st.sampled_from([f"r{number}" for number in range(9)])
DRAIN_CODES = (None, ReasonCode.OPERATOR, ReasonCode.REPLICA_EXCESS, ReasonCode.UNHEALTHY_AGAIN, ReasonCode.RESTART)


def restarts_of(state: ReplicaState) -> st.SearchStrategy[EngineRestart | None]:
    """Return restarts as a replica in this state may have had: one is under way out of rotation alone."""
    if state is ReplicaState.PENDING:
        return st.none()
    is_serving = state in (ReplicaState.READY, ReplicaState.DRAINING)
    return st.none() | st.builds(
        EngineRestart,
        at=st.floats(0, NOW_S).map(worlds.at),
        by_operator=st.booleans(),
        started_before=st.just(worlds.at(0)),
        orders=st.integers(0, 2),
        phase=st.just(RestartPhase.OVER) if is_serving else st.sampled_from(RestartPhase),
        fault=st.sampled_from(["", "no agent"]),
    )


@st.composite
def replicas(draw: st.DrawFn, number: int) -> ObservedReplica:
    state = draw(st.sampled_from(ReplicaState))
    created_s = draw(st.floats(0, NOW_S))
    changed_s = draw(st.floats(created_s, NOW_S))
    has_served = state in (ReplicaState.READY, ReplicaState.DRAINING) or draw(st.booleans())
    market = draw(st.sampled_from(Market))
    return worlds.observed(
        f"r{number}",
        state,
        record_lane=draw(st.sampled_from(["short", "long", "batch", "dropped"])),
        node=draw(st.sampled_from([None, *NodeState])),
        absent_readings=draw(st.integers(0, 2)),
        was_requested=draw(st.booleans()),
        creating=draw(st.booleans()) and state is ReplicaState.PENDING,
        healthy=draw(st.sampled_from([None, True, False])),
        can_restart=draw(st.booleans()),
        restarting=draw(st.sampled_from([False, False, False, True])),
        restart_failed=draw(st.sampled_from([False, False, False, True])),
        record_restart=draw(restarts_of(state)),
        record_drain_code=draw(st.sampled_from(DRAIN_CODES)) if state is ReplicaState.DRAINING else None,
        warming=draw(st.booleans()),
        warmed=draw(st.booleans()) and state is ReplicaState.WARMING,
        warm_failures=draw(st.integers(0, 4)) if state is ReplicaState.WARMING else 0,
        excluded=draw(st.booleans()) and state is not ReplicaState.READY,
        in_flight=draw(st.integers(0, 3)),
        consecutive_failures=draw(st.integers(0, 4)),
        notice_deadline=draw(st.none() | st.floats(NOW_S - 20, NOW_S + 120).map(worlds.at)),
        record_market=market,
        record_price_usd_per_hour=1.861 if market is Market.ON_DEMAND else 0.7444,
        record_created_at=worlds.at(created_s),
        record_changed_at=worlds.at(changed_s),
        record_ready_at=worlds.at(changed_s) if has_served else None,
        record_drain_deadline=draw(instants),
        record_drain_requested=draw(st.booleans()),
        record_fault=draw(st.sampled_from(["", "", "broken"])),
    )


@st.composite
def lanes(draw: st.DrawFn, name: str) -> LaneSnapshot:
    return worlds.traffic(
        name,
        rps=draw(st.floats(0, 30)),
        ttft_s=draw(st.none() | st.floats(0, 3)),
        wait_s=draw(st.none() | st.floats(0, 3)),
        samples_count=draw(st.integers(1, 300)),
        queued=draw(st.integers(0, 5)),
        oldest_wait_s=draw(st.floats(0, 3)),
        shed=draw(st.sampled_from([{}, {"max-wait": 3}, {"no-lane": 3}])),
    )


@st.composite
def fleets(draw: st.DrawFn) -> Desired:
    bounds = [sorted(draw(st.tuples(st.integers(0, 5), st.integers(0, 5)))) for _ in range(3)]
    lane_specs = [
        worlds.lane_spec("short", replicas=ReplicaBounds(min=bounds[0][0], max=bounds[0][1])),
        worlds.lane_spec("long", replicas=ReplicaBounds(min=bounds[1][0], max=bounds[1][1]), spill_to=("short",)),
        replace(
            worlds.lane_spec("long", replicas=ReplicaBounds(min=bounds[2][0], max=bounds[2][1])),
            name="batch",
            interruptible=True,
        ),
    ]
    names = ["short", "long", "batch"]
    return worlds.desired(
        *lane_specs,
        phase=draw(st.sampled_from([DesiredPhase.UP, DesiredPhase.UP, DesiredPhase.UP, DesiredPhase.DOWN])),
        mode=draw(st.sampled_from([Mode.ACTIVE, Mode.ACTIVE, Mode.SHADOW])),
        overrides=Overrides(
            replicas=draw(st.dictionaries(st.sampled_from(names), st.integers(0, 9), max_size=2)),
            step=draw(st.dictionaries(st.sampled_from(names), st.sampled_from(LadderStep), max_size=2)),
            restarts=draw(st.dictionaries(ids, st.integers(1, 2), max_size=3)),
        ),
        counts={name: draw(st.tuples(st.integers(0, 3), st.integers(0, 3))) for name in names},
        capacity=CapacitySpec(
            max_nodes=draw(st.integers(1, 12)), max_cost_usd_per_hour=draw(st.none() | st.floats(0.5, 20))
        ),
    )


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    seen = tuple(draw(replicas(number)) for number in range(draw(st.integers(0, 9))))
    has_gateway = draw(st.booleans())
    snapshot = worlds.snapshot(*(draw(lanes(name)) for name in ("short", "long", "batch")))
    orphaned_nodes = tuple(
        worlds.node(
            f"node-of-nobody-{number}",
            f"r{900 + number}",
            state=draw(st.sampled_from([NodeState.STARTING, NodeState.RUNNING, NodeState.STOPPING])),
        )
        for number in range(draw(st.integers(0, 2)))
    )
    world = worlds.observation(
        *seen,
        gateway=snapshot,
        now_s=NOW_S,
        listing_ok=draw(st.booleans()) or draw(st.booleans()),
        gateway_alive=has_gateway or draw(st.booleans()),
        gateway_validity=draw(st.sampled_from([Validity.OK, Validity.OK, Validity.STALE])),
        orphaned_nodes=orphaned_nodes,
    )
    return world if has_gateway else replace(world, gateway=None, gateway_validity=Validity.NONE)


shortfalls = st.builds(
    Shortfall, replicas=st.integers(1, 6), load_rps=st.floats(0.1, 10), cost=st.floats(0.25, 4), at=st.floats(0, NOW_S).map(worlds.at), times=st.integers(1, 9)
)  # fmt: skip


@st.composite
def burst_memories(draw: st.DrawFn) -> BurstMemory:
    """Return a memory of rising needs, each since later than the one before, and of needs that have passed."""
    needs = sorted(draw(st.sets(st.integers(0, 6), max_size=4)))
    times = sorted(draw(st.lists(st.floats(0, NOW_S), min_size=len(needs), max_size=len(needs))))
    past = st.builds(
        NeedPeak, need=st.integers(0, 6), at=st.floats(0, NOW_S).map(worlds.at), is_short=st.booleans(), is_burst=st.booleans()
    )  # fmt: skip
    return BurstMemory(
        levels=tuple(NeedLevel(need=need, since=worlds.at(at_s)) for need, at_s in zip(needs, times, strict=True)),
        peaks=tuple(draw(st.lists(past, max_size=4))),
        is_settling=draw(st.booleans()),
        planned_at=draw(instants),
        lowered_at=draw(instants),
        regrets=draw(st.integers(0, 6)),
        regretted_at=draw(instants),
        shortfall=draw(st.none() | shortfalls),
    )


lane_memories = st.builds(
    LaneMemory,
    wanted=st.integers(0, 6),
    planned=st.integers(-1, 5),
    requested=st.integers(0, 5),
    up_since=instants,
    bursts=burst_memories(),
    step=st.sampled_from(LadderStep),
    overloaded_since=instants,
    calm_since=instants,
    failures=st.integers(0, 6),
    last_failure=instants,
)
memories = st.builds(
    Memory,
    lanes=st.dictionaries(st.sampled_from(["short", "long", "batch"]), lane_memories),
    missing_since=st.dictionaries(ids, st.floats(0, NOW_S).map(worlds.at)),
    unhealthy_count=st.dictionaries(ids, st.integers(1, 3)),
    unhealthy_since=st.dictionaries(ids, st.floats(0, NOW_S).map(worlds.at)),
    orphaned_since=st.dictionaries(
        st.sampled_from(["node-of-nobody-0", "node-of-nobody-1"]), st.floats(0, NOW_S).map(worlds.at)
    ),
    gateway_missing_since=instants,
    gateway_started_at=instants,
    gateway_starts=st.integers(0, 5),
)


@settings(max_examples=200, deadline=None)
@given(fleets(), observations(), memories)
def test_asked_again_about_its_own_result_it_has_nothing_to_add(fleet, seen, memory):
    first = worlds.decide(fleet, seen, memory)
    again = worlds.decide(fleet, worlds.after(seen, first, fleet), first.memory)
    # Shadow mode does nothing, so its ideas stay the same ideas.
    assert [a for a in again.actions if not a.shadow and not _follows(a, first)] == []


_LEAVES = (DrainReplica, StopReplica, MarkGone)


def _follows(action: AnyAction, first: Decision) -> bool:
    """Whether it is the second half of what takes two steps.

    A silent gateway is ended, then started; a lane's last replica leaves, then its ladder has nothing to act on.
    """
    if isinstance(action, SetStep):
        return action.code is ReasonCode.REPLICAS_MISSING and any(isinstance(a, _LEAVES) for a in first.actions)
    return isinstance(action, StartGateway) and bool(worlds.of_kind(first, StopGateway))


@settings(max_examples=100, deadline=None)
@given(fleets(), observations(), memories, st.integers(0, 10))
def test_the_order_of_replicas_does_not_matter(fleet, seen, memory, seed):
    shuffled = list(seen.replicas)
    random.Random(seed).shuffle(shuffled)
    assert worlds.decide(fleet, replace(seen, replicas=tuple(shuffled)), memory) == worlds.decide(fleet, seen, memory)


@settings(max_examples=100, deadline=None)
@given(fleets(), observations(), memories)
def test_caps_and_bounds_are_never_exceeded_by_a_launch(fleet, seen, memory):
    decision = worlds.decide(fleet, seen, memory)
    if not worlds.of_kind(decision, LaunchReplica):
        return
    if fleet.profile.control.mode is Mode.SHADOW:
        decision = replace(decision, actions=tuple(a for a in decision.actions if not a.shadow))
    result = worlds.after(seen, decision, fleet)
    live = [r.record for r in result.replicas if r.record.state.is_live]
    launched = worlds.of_kind(decision, LaunchReplica)
    if launched:
        caps = fleet.profile.capacity
        assert len(live) + len(seen.orphaned_nodes) <= caps.max_nodes
        if caps.max_cost_usd_per_hour is not None:
            assert sum(r.price_usd_per_hour for r in live) <= caps.max_cost_usd_per_hour + 1e-6
    for spec in fleet.profile.lanes:
        if any(launch.lane == spec.name for launch in launched):
            staying = [r for r in live if r.lane == spec.name and r.state.counts_as_capacity and not r.drain_requested]
            # What may yet recover, or is taken, has its substitute already; so has what a launch is to replace.
            taken = {r.record.id for r in result.replicas if notice_of(r) is not None}
            exchanged = {launch.replaces for launch in launched if not launch.may_fall_back}
            staying = [r for r in staying if not r.is_recovering and r.id not in taken | exchanged]
            assert len(staying) <= spec.replicas.max


@settings(max_examples=100, deadline=None)
@given(fleets(), observations(), memories)
def test_every_lane_has_its_reason_and_every_action_too(fleet, seen, memory):
    decision = worlds.decide(fleet, seen, memory)
    for spec in fleet.profile.lanes:
        assert worlds.reason_of(decision, spec.name)
    assert all(action.reason for action in decision.actions)
    assert ReasonCode.UNKNOWN not in {action.code for action in decision.actions}
    assert decision.requeue_at > seen.at


@settings(max_examples=100, deadline=None)
@given(fleets(), observations(), memories)
def test_no_replica_is_given_two_orders_at_once(fleet, seen, memory):
    decision = worlds.decide(fleet, seen, memory)
    orders = Counter(a.replica_id for a in decision.actions if isinstance(a, OF_ONE_REPLICA))
    assert all(count == 1 for count in orders.values())


@settings(max_examples=100, deadline=None)
@given(fleets(), observations(), memories)
def test_an_engine_is_started_anew_on_a_node_that_is_well_alone_and_by_the_controller_once(fleet, seen, memory):
    by_id = {r.record.id: r for r in seen.replicas}
    for action in worlds.of_kind(worlds.decide(fleet, seen, memory), RestartReplica):
        replica = by_id[action.replica_id]
        assert replica.can_restart
        assert (replica.node, notice_of(replica)) == (NodeState.RUNNING, None)
        assert replica.record.state is not ReplicaState.READY
        is_repeated = action.code is ReasonCode.RESTART_LOST
        assert action.by_operator or is_repeated or replica.record.restart is None
        assert fleet.phase is DesiredPhase.UP


@settings(max_examples=100, deadline=None)
@given(fleets(), observations(), memories)
def test_while_the_provider_is_silent_nothing_is_down_and_nobodys_node_is_ended(fleet, seen, memory):
    decision = worlds.decide(fleet, replace(seen, listing_ok=False), memory)
    assert fleet.phase is DesiredPhase.DOWN or worlds.of_kind(decision, StopOrphanedNode) == []
    assert not decision.is_down


@settings(max_examples=100, deadline=None)
@given(fleets(), observations(), memories)
def test_a_replica_is_gone_only_when_its_provider_says_so_or_two_readings_after_its_stop(fleet, seen, memory):
    by_id = {r.record.id: r for r in seen.replicas}
    for action in worlds.of_kind(worlds.decide(fleet, seen, memory), MarkGone):
        replica = by_id[action.replica_id]
        is_refused = bool(replica.record.fault) and replica.record.state is ReplicaState.PENDING
        is_leaving = replica.record.state in (ReplicaState.PENDING, ReplicaState.STOPPING)
        twice_absent = is_leaving and replica.absent_readings >= 2
        assert replica.node is NodeState.GONE or twice_absent or is_refused or not replica.was_requested


@settings(max_examples=100, deadline=None)
@given(fleets(), observations(), memories)
def test_nothing_serves_before_a_real_completion_came_back(fleet, seen, memory):
    decision = worlds.decide(fleet, seen, memory)
    by_id = {r.record.id: r for r in seen.replicas}
    for action in worlds.of_kind(decision, AdmitReplica):
        assert by_id[action.replica_id].warmed
        assert by_id[action.replica_id].record.state is ReplicaState.WARMING


@settings(max_examples=100, deadline=None)
@given(fleets(), observations(), memories)
def test_a_launch_comes_before_the_drain_it_makes_up_for(fleet, seen, memory):
    kinds = [type(a) for a in worlds.decide(fleet, seen, memory).actions]
    launches = [i for i, kind in enumerate(kinds) if kind is LaunchReplica]
    drains = [i for i, kind in enumerate(kinds) if kind is DrainReplica]
    assert not launches or not drains or max(launches) < min(drains)


@settings(max_examples=100, deadline=None)
@given(fleets(), observations(), memories)
def test_the_same_question_has_the_same_answer(fleet, seen, memory):
    assert reconcile(fleet, seen, memory, seen.at) == reconcile(fleet, seen, memory, seen.at)

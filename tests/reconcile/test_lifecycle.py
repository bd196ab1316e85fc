"""One replica's road: ordered, booting, warmed, serving, leaving, gone."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from fleetctl.core.liveness import stall_limits_s
from fleetctl.core.reconcile.limits import UNHEALTHY_MAX, recovery_limit_s
from fleetctl.model.decision import (
    AdmitReplica,
    DrainReplica,
    LaneMemory,
    LaunchReplica,
    MarkBooting,
    MarkGone,
    Memory,
    StopOrphanedNode,
    StopReplica,
    WarmReplica,
)
from fleetctl.model.node import Node, NodeState
from fleetctl.model.observation import ObservedReplica, ProviderCondition, ProviderFault
from fleetctl.model.profile import CapacitySpec, ControlSpec
from fleetctl.model.reason import join_messages
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import FLEET, Subject
from fleetctl.testing import samples
from tests.reconcile import worlds
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, reason_of

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired

STATE = ReplicaState


def settled(wanted: int = 2, **changes: object) -> Memory:
    """Return the memory of a lane that has long been at its plan."""
    lane = LaneMemory(wanted=wanted, planned=wanted, requested=wanted, **changes)  # type: ignore[arg-type]
    return Memory(lanes={"short": lane})


def test_an_empty_fleet_launches_what_the_plan_says_on_demand_first():
    decision = decide(worlds.one_lane(on_demand=1, spot=2), observation())
    assert [launch.market.value for launch in of_kind(decision, LaunchReplica)] == ["on-demand", "spot", "spot"]


def test_booting_replicas_count_so_none_is_ordered_twice():
    seen = observation(observed("r1", STATE.PENDING), observed("r2", STATE.BOOTING))
    assert of_kind(decide(worlds.one_lane(2), seen), LaunchReplica) == []


def test_a_healthy_replica_is_warmed_and_only_then_admitted():
    booting = observed("r1", STATE.BOOTING, healthy=True)
    assert of_kind(decide(worlds.one_lane(1), observation(booting)), WarmReplica)
    warming = observed("r1", STATE.WARMING)
    assert decide(worlds.one_lane(1), observation(warming)).actions == ()
    warmed = observed("r1", STATE.WARMING, warmed=True)
    assert of_kind(decide(worlds.one_lane(1), observation(warmed)), AdmitReplica)


def test_a_warm_up_lost_with_the_last_controller_is_sent_again():
    seen = observation(observed("r1", STATE.WARMING, warming=False))
    assert [a.replica_id for a in of_kind(decide(worlds.one_lane(1), seen), WarmReplica)] == ["r1"]


def test_a_replica_whose_warm_ups_fail_is_stopped_and_its_successor_backed_off():
    seen = observation(observed("r1", STATE.WARMING, warm_failures=3))
    decision = decide(worlds.one_lane(1), seen, settled(1))
    assert of_kind(decision, StopReplica)[0].fault == "3 warm-up completions failed"
    assert of_kind(decision, LaunchReplica) == []
    assert "the next in 2s" in reason_of(decision, "short")


def test_a_replica_that_does_not_start_in_time_is_a_failed_start():
    slow = observed("r1", STATE.BOOTING, healthy=False, record_created_at=at(3600 - 601))
    decision = decide(worlds.one_lane(1), observation(slow), settled(1))
    assert "not ready in 10m1s" in of_kind(decision, StopReplica)[0].fault
    assert decision.memory.lanes["short"].failures == 1


def test_a_controller_back_from_a_long_absence_looks_before_it_condemns():
    old = observed("r1", STATE.BOOTING, healthy=None, record_created_at=at(0))
    assert decide(worlds.one_lane(1), observation(old), settled(1)).actions == ()


@pytest.mark.parametrize(("failures", "wait_s"), [(1, 2), (2, 4), (5, 32), (30, 120)])
def test_failed_starts_back_off_exponentially_up_to_two_minutes(failures, wait_s):
    memory = settled(1, failures=failures, last_failure=at(3600))
    early = decide(worlds.one_lane(1), observation(now_s=3600 + wait_s - 1), memory)
    assert of_kind(early, LaunchReplica) == []
    assert of_kind(decide(worlds.one_lane(1), observation(now_s=3600 + wait_s), memory), LaunchReplica)


def test_a_success_forgets_the_failures():
    memory = settled(1, failures=4, last_failure=at(3590))
    decision = decide(worlds.one_lane(1), observation(observed("r1", STATE.WARMING, warmed=True)), memory)
    assert decision.memory.lanes["short"].failures == 0


def test_a_dead_replica_is_noted_and_replaced_in_the_same_breath():
    dead = observed("r1", node=NodeState.GONE, exit_reason="signal 9", record_ready_at=at(0))
    decision = decide(worlds.one_lane(2), observation(dead, observed("r2")), settled(2))
    assert [(a.replica_id, a.failed) for a in of_kind(decision, MarkGone)] == [("r1", True)]
    assert "signal 9" in of_kind(decision, MarkGone)[0].reason
    assert [a.replaces for a in of_kind(decision, LaunchReplica)] == ["r1"]


def test_one_that_had_been_ready_is_no_failed_start_however_young_it_died():
    dead = observed("r1", node=NodeState.GONE, record_ready_at=at(3590))
    decision = decide(worlds.one_lane(1), observation(dead), settled(1))
    assert [launch.replaces for launch in of_kind(decision, LaunchReplica)] == ["r1"]
    assert decision.memory.lanes["short"].failures == 0


def test_young_replicas_killed_together_are_all_replaced_at_once():
    dead = [observed(f"r{n}", node=NodeState.GONE, record_ready_at=at(3590 + n)) for n in range(3)]
    decision = decide(worlds.one_lane(3), observation(*dead), settled(3))
    assert len(of_kind(decision, LaunchReplica)) == 3


def short_lives(
    lives: int, *, lived_s: float, seed: int, boot_s: float = 300.0, others: tuple[ObservedReplica, ...] = ()
) -> list[float]:
    """Let a replica die again and again after `lived_s`; return how long each replacement was waited for.

    Replicas of its kind were measured to take `boot_s` to start; `others` serve beside it.
    """
    rng = random.Random(seed)
    wanted = 1 + len(others)
    fleet = worlds.one_lane(wanted, control=ControlSpec(scale_down_after_s=1e6))
    memory, now_s, waits = settled(wanted), 1000.0, []
    measured_s = {fleet.plan.lane("short").offering.key: boot_s}
    for n in range(lives):
        ready_s = now_s + rng.uniform(1.0, 8.0)
        alive = observed(f"r{n}", record_created_at=at(now_s), record_ready_at=at(ready_s))
        seen = observation(alive, *others, now_s=ready_s + lived_s - 0.01, boot_s=measured_s)
        memory = decide(fleet, seen, memory).memory
        died_s = now_s = ready_s + lived_s
        dead = msgspec.structs.replace(alive, node=NodeState.GONE)
        decision = decide(fleet, observation(dead, *others, now_s=now_s, boot_s=measured_s), memory)
        while not of_kind(decision, LaunchReplica):
            assert any("died soon after" in reason.message for reason in decision.reasons[Subject.lane("short")])
            now_s += rng.uniform(0.2, 1.0)
            decision = decide(fleet, observation(*others, now_s=now_s, boot_s=measured_s), decision.memory)
        memory = decision.memory
        waits.append(now_s - died_s)
    return waits


@pytest.mark.parametrize("seed", range(5))
def test_a_replica_that_becomes_ready_and_dies_at_once_again_and_again_is_backed_off(seed):
    waits = short_lives(9, lived_s=2.0, seed=seed)
    for wait_s, least_s in zip(waits, (0, 2, 4, 8, 16, 32, 64, 120, 120), strict=True):
        assert least_s <= wait_s <= least_s + 1.0


def test_the_back_off_of_early_deaths_costs_no_more_than_a_start_while_nobody_serves():
    alone = short_lives(9, lived_s=2.0, seed=1, boot_s=5.0)
    beside = short_lives(9, lived_s=2.0, seed=1, boot_s=5.0, others=(observed("r90"), observed("r91")))
    for wait_s, waits_beside_s, least_s in zip(alone, beside, (0, 2, 4, 8, 16, 32, 64, 120, 120), strict=True):
        assert min(least_s, 5.0) <= wait_s <= min(least_s, 5.0) + 1.0
        assert min(least_s, 15.0) <= waits_beside_s <= min(least_s, 15.0) + 1.0


def test_replicas_that_served_for_long_are_replaced_at_once_however_often():
    assert short_lives(6, lived_s=90.0, seed=1) == [0.0] * 6


def test_starts_that_were_under_way_together_and_fail_are_one_failure_in_a_row():
    def dead(n: int, requested_s: float) -> ObservedReplica:
        return observed(
            f"r{n}", STATE.BOOTING, node=NodeState.GONE, record_ready_at=None, record_created_at=at(requested_s)
        )

    fleet = worlds.one_lane(3)
    first = decide(fleet, observation(dead(1, 3595), dead(2, 3596)), settled(3))
    assert first.memory.lanes["short"].failures == 1
    late = decide(fleet, observation(dead(3, 3597), now_s=3601), first.memory)  # ordered before the others failed
    assert late.memory.lanes["short"].failures == 1
    again = decide(fleet, observation(dead(4, 3602), now_s=3603), late.memory)
    assert again.memory.lanes["short"].failures == 2


def test_an_unlisted_node_is_told_to_end_after_half_a_minute_not_at_once():
    missing = observation(observed("r1", node=None, healthy=False))
    first = decide(worlds.one_lane(1), missing, settled(1))
    assert first.actions == ()
    later = observation(observed("r1", node=None, healthy=False), now_s=3631)
    decision = decide(worlds.one_lane(1), later, first.memory)
    assert of_kind(decision, StopReplica)
    assert of_kind(decision, MarkGone) == []


def test_a_notice_launches_the_replacement_before_the_drain_begins():
    noticed = observed("r1", notice_deadline=at(3619), in_flight=3)
    decision = decide(worlds.one_lane(1, spot=1), observation(noticed, observed("r2")), settled(2))
    assert [type(a) for a in decision.actions] == [LaunchReplica, DrainReplica]
    drain = of_kind(decision, DrainReplica)[0]
    assert drain.deadline == at(3615.2)
    assert "taken in 19s" in drain.reason


def test_a_short_notice_leaves_a_margin_before_the_node_is_taken():
    noticed = observed("r1", notice_deadline=at(3615))
    drain = of_kind(decide(worlds.one_lane(1), observation(noticed), settled(1)), DrainReplica)[0]
    assert drain.deadline == at(3612)


def test_a_drain_ends_once_the_gateway_sends_it_nothing_and_nothing_is_in_flight():
    draining = observed("r1", STATE.DRAINING, in_flight=0, excluded=False, record_drain_deadline=at(3700))
    calm = worlds.one_lane(1)
    assert of_kind(decide(calm, observation(draining, observed("r2")), settled(1)), StopReplica) == []
    busy = observed("r1", STATE.DRAINING, in_flight=2, excluded=True, record_drain_deadline=at(3700))
    assert of_kind(decide(calm, observation(busy, observed("r2")), settled(1)), StopReplica) == []
    empty = observed("r1", STATE.DRAINING, in_flight=0, excluded=True, record_drain_deadline=at(3700))
    assert of_kind(decide(calm, observation(empty, observed("r2")), settled(1)), StopReplica)


def test_a_drain_is_over_at_its_deadline_whatever_is_in_flight():
    late = observed("r1", STATE.DRAINING, in_flight=2, excluded=True, record_drain_deadline=at(3599))
    stop = of_kind(decide(worlds.one_lane(1), observation(late, observed("r2")), settled(1)), StopReplica)[0]
    assert "2 in flight" in stop.reason


def test_a_drain_by_hand_starts_at_once_while_others_serve():
    to_drain = observed("r1", record_drain_requested=True, in_flight=1)
    decision = decide(worlds.one_lane(2), observation(to_drain, observed("r2")), settled(2))
    assert [type(a) for a in decision.actions] == [LaunchReplica, DrainReplica]
    assert of_kind(decision, LaunchReplica)[0].replaces == "r1"


def test_the_lanes_last_replica_serves_until_its_replacement_is_ready():
    to_drain = observed("r1", record_drain_requested=True)
    fleet = worlds.one_lane(1)
    first = decide(fleet, observation(to_drain), settled(1))
    assert [type(a) for a in first.actions] == [LaunchReplica]
    assert "once its replacement is ready" in reason_of(first, "short")
    with_new = observation(to_drain, observed("r2"))
    assert of_kind(decide(fleet, with_new, first.memory), DrainReplica)


def test_an_unhealthy_replica_leaves_rotation_and_is_replaced_if_it_stays_so():
    unhealthy = observed("r1", healthy=False)
    memory = settled(2)
    first = decide(worlds.one_lane(2), observation(unhealthy, observed("r2")), memory)
    assert first.actions == ()
    second = decide(worlds.one_lane(2), observation(unhealthy, observed("r2"), now_s=3606), first.memory)
    assert [a.replica_id for a in of_kind(second, MarkBooting)] == ["r1"]
    # Its substitute does not wait for the verdict on it.
    assert [a.replaces for a in of_kind(second, LaunchReplica)] == ["r1"]
    stayed = observed("r1", STATE.BOOTING, healthy=False, record_ready_at=at(0), record_changed_at=at(3606))
    coming = observed("r3", STATE.BOOTING, healthy=None, record_created_at=at(3606))
    third = decide(worlds.one_lane(2), observation(stayed, observed("r2"), coming, now_s=3625), second.memory)
    (stop,) = of_kind(third, StopReplica)
    assert "not recovered" in stop.fault
    assert stop.grace_s == 0  # a stopped process takes no SIGTERM
    assert not of_kind(third, LaunchReplica)


@pytest.mark.parametrize("others", [0, 2])
def test_one_that_stands_still_is_given_as_long_as_a_working_one_could_take(others):
    rest = [observed(f"r{number + 2}") for number in range(others)]
    coming = observed("r9", STATE.BOOTING, healthy=None, record_created_at=at(3590))
    fleet, memory = worlds.one_lane(1 + others), settled(1 + others)
    limit_s = recovery_limit_s(stall_limits_s(fleet.profile)["short"])
    assert limit_s < 20.0
    for out_s, ends in ((limit_s - 1.0, False), (limit_s + 1.0, True)):
        still = observed("r1", STATE.BOOTING, healthy=False, record_ready_at=at(0), record_changed_at=at(3600 - out_s))
        decision = decide(fleet, observation(still, *rest, coming), memory)
        assert bool(of_kind(decision, StopReplica)) is ends
        assert not of_kind(decision, LaunchReplica)


def test_one_that_recovers_stays_and_its_substitute_goes_once_it_can():
    fleet, memory = worlds.one_lane(1), settled(1)
    back = observed("r1", STATE.WARMING, warmed=True, record_ready_at=at(0), record_changed_at=at(3599))
    pending = observed("r2", STATE.PENDING, node=None, creating=True, record_created_at=at(3595))
    first = decide(fleet, observation(back, pending), memory)
    assert [type(a) for a in first.actions] == [AdmitReplica]
    booting = observed("r2", STATE.BOOTING, healthy=None, record_created_at=at(3595))
    second = decide(fleet, observation(observed("r1"), booting), first.memory)
    assert [a.replica_id for a in of_kind(second, StopReplica)] == ["r2"]


def test_replicas_that_cease_to_work_soon_after_they_were_ready_back_off():
    fleet, memory = worlds.one_lane(1), settled(1)
    launches: list[int] = []
    for number in range(4):
        ready_s = 3600 + 20 * number
        failing = observed(
            f"r{number}", consecutive_failures=3, record_created_at=at(ready_s - 5), record_ready_at=at(ready_s)
        )
        decision = decide(fleet, observation(failing, now_s=ready_s + 3), memory)
        assert of_kind(decision, MarkBooting)
        launches.append(len(of_kind(decision, LaunchReplica)))
        memory = decision.memory
    assert memory.lanes["short"].early_deaths == 4
    # The first is replaced at once.
    assert launches == [1, 0, 0, 0]


def test_three_failures_in_a_row_at_the_gateway_take_it_out_of_rotation():
    seen = observation(observed("r1", consecutive_failures=3), observed("r2"))
    marked = of_kind(decide(worlds.one_lane(2), seen, settled(2)), MarkBooting)
    assert "3 requests in a row" in marked[0].reason


def test_one_that_turns_unhealthy_again_and_again_is_replaced():
    fleet, memory = worlds.one_lane(2), settled(2)
    seen = observation(observed("r1", consecutive_failures=3), observed("r2"))
    for _ in range(2):
        decision = decide(fleet, seen, memory)
        assert of_kind(decision, MarkBooting)
        memory = decision.memory
    last = decide(fleet, seen, memory)
    assert [type(a) for a in last.actions] == [LaunchReplica, DrainReplica]
    assert "after 2 recoveries" in of_kind(last, DrainReplica)[0].reason


def test_one_that_stands_still_again_after_a_longer_proof_is_replaced():
    fleet = worlds.one_lane(2)
    seen = observation(observed("r1", is_stalled=True), observed("r2"))
    first = decide(fleet, seen, settled(2))
    assert of_kind(first, MarkBooting)
    healthy = observed("r1", STATE.BOOTING, healthy=True, record_ready_at=at(0), record_changed_at=at(3600))
    (warm,) = of_kind(decide(fleet, observation(healthy, observed("r2"), now_s=3601), first.memory), WarmReplica)
    assert warm.recoveries == 1
    last = decide(fleet, seen, first.memory)
    assert [type(a) for a in last.actions] == [LaunchReplica, DrainReplica]
    assert "after 1 recovery" in of_kind(last, DrainReplica)[0].reason
    # Its streams are not left there while it drains.
    assert last.memory.unhealthy_count["r1"] >= UNHEALTHY_MAX


@pytest.mark.parametrize(("recoveries", "hold_s"), [(1, 3.0), (2, 9.0)])
def test_one_that_was_taken_out_of_rotation_is_held_longer_each_time(recoveries, hold_s):
    fleet, memory = worlds.one_lane(1), replace(settled(1), unhealthy_count={"r1": recoveries})
    for healthy_s, is_admitted in ((hold_s - 1.0, False), (hold_s, True)):
        since = at(3600 - healthy_s)
        back = observed("r1", STATE.WARMING, warmed=True, record_ready_at=at(0), record_changed_at=since)
        decision = decide(fleet, observation(back), memory)
        assert bool(of_kind(decision, AdmitReplica)) is is_admitted


def test_a_node_that_does_not_end_is_told_again():
    stopping = observed("r1", STATE.STOPPING, record_changed_at=at(3579))
    assert of_kind(decide(worlds.one_lane(1), observation(stopping, observed("r2")), settled(1)), StopReplica)


def test_an_order_that_was_cut_off_waits_for_its_node_to_be_adopted():
    cut = observed("r1", STATE.PENDING, creating=False, node=NodeState.RUNNING)
    assert decide(worlds.one_lane(1), observation(cut), settled(1)).actions == ()


def test_an_unlisted_replica_that_does_not_answer_is_told_to_end_and_not_believed_gone():
    lost = observed("r1", node=None, healthy=False)
    memory = replace(settled(1), missing_since={"r1": at(3569)})
    decision = decide(worlds.one_lane(1), observation(lost), memory)
    assert [a.replica_id for a in of_kind(decision, StopReplica)] == ["r1"]
    assert of_kind(decision, MarkGone) == []


def test_an_unlisted_replica_that_answers_is_kept():
    lost = observed("r1", node=None, healthy=True)
    memory = replace(settled(1), missing_since={"r1": at(1000)})
    assert decide(worlds.one_lane(1), observation(lost), memory).actions == ()


@pytest.mark.parametrize(("readings", "is_gone"), [(0, False), (1, False), (2, True)])
def test_a_stopped_node_is_believed_gone_at_the_second_reading_without_it(readings, is_gone):
    stopping = observed("r1", STATE.STOPPING, node=None, absent_readings=readings, record_changed_at=at(3599))
    decision = decide(worlds.one_lane(1), observation(stopping, observed("r2")), settled(1))
    assert bool(of_kind(decision, MarkGone)) is is_gone


def test_a_stop_is_asked_for_again_only_when_the_providers_deadline_has_passed():
    stopping = observed("r1", STATE.STOPPING, record_changed_at=at(3500))
    seen = replace(observation(stopping, observed("r2")), stop_deadline_s=120.0)
    assert of_kind(decide(worlds.one_lane(1), seen, settled(1)), StopReplica) == []


def test_without_credentials_nothing_is_ordered_and_the_reason_comes_first():
    missing = ProviderCondition(fault=ProviderFault.CREDENTIALS, message="no credentials; log in")
    seen = replace(observation(), provider_conditions=(missing,))
    decision = decide(worlds.one_lane(2), seen)
    assert decision.actions == ()
    assert join_messages(decision.reasons[FLEET]) == "no credentials; log in"
    assert "2 more wanted, but no credentials; log in" in reason_of(decision, "short")


def test_an_orphaned_node_is_ended_once_it_was_seen_for_five_seconds():
    orphan = worlds.node("node-9", "r9")
    first = decide(worlds.one_lane(1), observation(observed("r1"), orphaned_nodes=(orphan,)), settled(1))
    assert of_kind(first, StopOrphanedNode) == []
    again = decide(worlds.one_lane(1), observation(observed("r1"), orphaned_nodes=(orphan,), now_s=3606), first.memory)
    assert [a.node_id for a in of_kind(again, StopOrphanedNode)] == ["node-9"]


def test_replicas_of_a_lane_that_left_the_profile_are_drained():
    seen = observation(observed("r1"), observed("r9", record_lane="old"))
    drained = of_kind(decide(worlds.one_lane(1), seen, settled(1)), DrainReplica)
    assert [a.replica_id for a in drained] == ["r9"]


@pytest.mark.parametrize("billed_usd", [2.0, None])
def test_an_orphaned_node_that_stays_is_paid_for_under_the_cost_cap(billed_usd: float | None) -> None:
    orphan = replace(worlds.node("node-9", "r9"), price_usd_per_hour=billed_usd)
    price = worlds.one_lane(2).plan.lanes[0].offering.price_usd_per_hour
    cap = price + (price if billed_usd is None else billed_usd)  # for one replica beside it

    def launched(*nodes: Node) -> int:
        fleet = worlds.one_lane(2, capacity=CapacitySpec(max_cost_usd_per_hour=cap))
        return len(of_kind(decide(fleet, observation(orphaned_nodes=nodes)), LaunchReplica))

    assert launched(orphan) == 1
    assert launched() == 2


def test_no_launch_beyond_the_node_cap_and_the_reason_says_so():
    fleet = worlds.one_lane(3, capacity=CapacitySpec(max_nodes=2))
    decision = decide(fleet, observation())
    assert len(of_kind(decision, LaunchReplica)) == 2
    assert "1 more wanted, but at the fleet's cap of 2 nodes" in reason_of(decision, "short")


def test_no_launch_beyond_the_cost_cap():
    fleet = worlds.one_lane(3, capacity=CapacitySpec(max_cost_usd_per_hour=4.0))
    decision = decide(fleet, observation())
    assert len(of_kind(decision, LaunchReplica)) == 2
    assert "$4.00/h" in reason_of(decision, "short")


def on_one_machine(wanted: int, *, gpus: int, tensor_parallel: int = 1) -> Desired:
    """Return a fleet planned on a machine of so many GPUs."""
    fleet = worlds.one_lane(wanted)
    share = samples.offering(zone="this-machine", price_usd_per_hour=0.0, pool_gpus=gpus, gpu_count=tensor_parallel)
    (lane,) = fleet.plan.lanes
    lane = replace(lane, offering=share, tensor_parallel=tensor_parallel)
    return replace(fleet, plan=replace(fleet.plan, lanes=(lane,)))


@pytest.mark.parametrize(("tensor_parallel", "launches"), [(1, 3), (2, 2), (4, 1)])
def test_no_launch_beyond_the_gpus_of_the_machine(tensor_parallel, launches):
    fleet = on_one_machine(4, gpus=4, tensor_parallel=tensor_parallel)
    key = fleet.plan.lanes[0].offering.key
    there = () if tensor_parallel > 1 else (observed("r1", record_offering=key, record_gpu_indices=(2,)),)
    decision = decide(fleet, observation(*there))
    assert len(of_kind(decision, LaunchReplica)) == launches
    wanting = 4 - launches - len(there)
    expected = (
        f"{wanting} more wanted, but of the machine's 4 L40S none are free, and a replica takes {tensor_parallel}"
    )
    assert (expected in reason_of(decision, "short")) is (wanting > 0)


def test_gpus_that_have_come_since_the_plan_are_taken_and_the_plans_number_stands_where_fewer_are_sold():
    fleet = on_one_machine(4, gpus=2)
    planned = fleet.plan.lanes[0].offering
    for there, launches in ((4, 4), (3, 3), (1, 2)):
        decision = decide(fleet, observation(offerings=(replace(planned, pool_gpus=there),)))
        assert len(of_kind(decision, LaunchReplica)) == launches


def test_gpus_of_a_replica_that_ends_are_free_once_it_has():
    fleet = on_one_machine(1, gpus=1)
    here = {"record_offering": fleet.plan.lanes[0].offering.key, "record_gpu_indices": (0,)}
    leaving = observed("r1", STATE.STOPPING, **here)
    assert not of_kind(decide(fleet, observation(leaving)), LaunchReplica)
    assert of_kind(decide(fleet, observation()), LaunchReplica)
    elsewhere = observed("r1", STATE.STOPPING, record_gpu_indices=(0,))
    assert of_kind(decide(fleet, observation(elsewhere)), LaunchReplica)


def test_a_drain_deadline_before_the_next_tick_is_looked_at_in_time():
    late = observed("r1", STATE.DRAINING, in_flight=1, record_drain_deadline=at(3600.4))
    fleet = worlds.one_lane(1, control=ControlSpec(tick_s=1.0))
    assert decide(fleet, observation(late, observed("r2")), settled(1)).requeue_at == at(3600.4)

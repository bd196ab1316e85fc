"""The fleet as a whole: its gateway, its end, and shadow mode."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.model.decision import DrainReplica, LaneMemory, LaunchReplica, MarkGone, Memory, StopReplica
from fleetctl.model.desired import DesiredPhase, Overrides
from fleetctl.model.gateway_actions import StartGateway, StopGateway
from fleetctl.model.node import NodeState
from fleetctl.model.profile import Mode
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from fleetctl.model.decision import Decision
    from fleetctl.model.observation import Observation, ObservedReplica
from tests.reconcile import worlds
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, snapshot, traffic

STATE = ReplicaState
PLANNED = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})
TWO = (observed("r1"), observed("r2"))


def without_gateway(*replicas: ObservedReplica, alive: bool = False, now_s: float = 3600.0) -> Observation:
    return replace(observation(*replicas, now_s=now_s), gateway=None, gateway_alive=alive)


def test_a_missing_gateway_is_started_at_once():
    assert of_kind(decide(worlds.one_lane(2), without_gateway(*TWO), PLANNED), StartGateway)


def test_a_gateway_that_keeps_dying_is_started_ever_more_slowly():
    fleet, memory, starts = worlds.one_lane(2), PLANNED, []
    for second in range(120):
        decision = decide(fleet, without_gateway(*TWO, now_s=3600 + second), memory)
        memory = decision.memory
        starts += [second] * len(of_kind(decision, StartGateway))
    assert starts == [0, 1, 3, 7, 15, 31, 63]


def test_a_gateway_that_is_still_starting_is_left_alone():
    memory = replace(PLANNED, gateway_started_at=at(3595), gateway_starts=1, gateway_missing_since=at(3500))
    assert decide(worlds.one_lane(2), without_gateway(*TWO, alive=True), memory).actions == ()


def test_a_gateway_that_lives_and_is_silent_is_ended():
    memory = replace(PLANNED, gateway_started_at=at(0), gateway_missing_since=at(3584))
    decision = decide(worlds.one_lane(2), without_gateway(*TWO, alive=True), memory)
    assert [a.reason for a in of_kind(decision, StopGateway)] == [
        "alive, but no answer for 16s: ended, to be started afresh"
    ]


def test_a_gateway_without_a_heartbeat_is_left_to_whoever_tells_waiting_from_hanging():
    memory = replace(PLANNED, gateway_started_at=at(0), gateway_missing_since=at(3500))
    starved = replace(without_gateway(*TWO, alive=True), gateway_beating=False)
    assert decide(worlds.one_lane(2), starved, memory).actions == ()
    hung = replace(starved, gateway_stall="process 7 hangs")
    assert of_kind(decide(worlds.one_lane(2), hung, memory), StopGateway)


def ended_after_s(*, lost_share: float) -> int | None:
    """Return after how many seconds a gateway that beats and answers nothing is ended, where so much of each says nothing."""
    fleet, memory = worlds.one_lane(2), replace(PLANNED, gateway_started_at=at(0))
    for second in range(120):
        silent = replace(without_gateway(*TWO, alive=True, now_s=3600 + second), gateway_lost_s=lost_share)
        decision = decide(fleet, silent, memory)
        memory = decision.memory
        if of_kind(decision, StopGateway):
            return second
    return None


def test_a_silent_gateway_is_ended_for_the_time_in_which_it_could_have_answered():
    assert ended_after_s(lost_share=0.0) == 15
    assert ended_after_s(lost_share=0.75) == 60
    assert ended_after_s(lost_share=1.0) is None
    # More may be found lost than went by since the last look: what was counted before is taken back, and no more.
    assert ended_after_s(lost_share=3.0) is None


def test_a_gateway_that_died_is_missing_for_all_the_time():
    gone = replace(without_gateway(*TWO), gateway_lost_s=1.0)
    decision = decide(worlds.one_lane(2), gone, replace(PLANNED, gateway_missing_since=at(3590)))
    assert decision.memory.gateway_missing_since == at(3590)


def test_going_down_drains_what_serves_ends_the_rest_and_the_gateway_last():
    fleet = worlds.one_lane(2, phase=DesiredPhase.DOWN)
    first = decide(fleet, observation(observed("r1", in_flight=2), observed("r2", STATE.BOOTING)), PLANNED)
    assert [a.replica_id for a in of_kind(first, DrainReplica)] == ["r1"]
    assert of_kind(first, DrainReplica)[0].deadline == at(3610)
    assert [a.replica_id for a in of_kind(first, StopReplica)] == ["r2"]
    assert of_kind(first, StopGateway) == []
    last = decide(fleet, observation(observed("r1", STATE.STOPPING, node=NodeState.GONE)), first.memory)
    assert [type(a) for a in last.actions] == [MarkGone, StopGateway]
    assert not last.is_down


def test_it_is_down_when_nothing_is_left():
    fleet = worlds.one_lane(2, phase=DesiredPhase.DOWN)
    decision = decide(fleet, without_gateway(observed("r1", STATE.GONE)), PLANNED)
    assert decision.is_down
    assert decision.actions == ()


def test_it_is_not_down_while_the_provider_is_silent():
    fleet = worlds.one_lane(2, phase=DesiredPhase.DOWN)
    assert not decide(fleet, replace(without_gateway(), listing_ok=False), PLANNED).is_down


def test_an_order_without_a_node_is_closed_when_going_down():
    fleet = worlds.one_lane(2, phase=DesiredPhase.DOWN)
    cut = observed("r1", STATE.PENDING, creating=False, absent_readings=2)
    assert [a.failed for a in of_kind(decide(fleet, observation(cut), PLANNED), MarkGone)] == [False]
    never_sent = observed("r1", STATE.PENDING, creating=False, was_requested=False)
    assert of_kind(decide(fleet, observation(never_sent), PLANNED), MarkGone)
    under_way = observed("r1", STATE.PENDING, creating=True)
    assert decide(fleet, observation(under_way), PLANNED).actions == ()
    read_once = observed("r1", STATE.PENDING, creating=False, absent_readings=1)
    assert decide(fleet, observation(read_once), PLANNED).actions == ()


def test_shadow_mode_brings_up_what_was_ordered():
    decision = decide(worlds.one_lane(2, mode=Mode.SHADOW), observation())
    assert [a.shadow for a in of_kind(decision, LaunchReplica)] == [False, False]


def test_shadow_mode_only_thinks_of_replacing_the_dead():
    dead = observed("r1", node=NodeState.GONE, record_ready_at=at(0))
    decision = decide(worlds.one_lane(2, mode=Mode.SHADOW), observation(dead, observed("r2")), PLANNED)
    assert [(type(a), a.shadow) for a in decision.actions] == [(MarkGone, False), (LaunchReplica, True)]


def test_shadow_mode_only_thinks_of_scaling_and_of_heeding_a_notice():
    fleet = worlds.one_lane(2, mode=Mode.SHADOW)
    memory = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2, up_since=at(0))})
    gateway = snapshot(traffic("short", ttft_s=0.5))
    grown = decide(fleet, observation(*TWO, gateway=gateway), memory)
    assert [(type(a), a.shadow) for a in grown.actions] == [(LaunchReplica, True)]
    noticed = observed("r1", notice_deadline=at(3615))
    heeded = decide(fleet, observation(noticed, observed("r2")), PLANNED)
    assert all(a.shadow for a in heeded.actions)
    assert {type(a) for a in heeded.actions} == {LaunchReplica, DrainReplica}


def shadow_drains(decision: Decision) -> list[bool]:
    return [a.shadow for a in of_kind(decision, DrainReplica)]


def of_three(decision: Decision) -> Memory:
    """Return what is remembered, and that three are wanted by load."""
    lane = decision.memory.lanes["short"]
    return replace(decision.memory, lanes={"short": replace(lane, wanted=3)})


def test_what_the_controller_had_added_by_itself_stays_when_it_turns_to_shadow():
    serving = observation(*TWO, observed("r3"))
    active = decide(worlds.one_lane(2), serving, Memory(lanes={"short": LaneMemory(wanted=3, planned=2, requested=2)}))
    assert active.actions == ()
    watching = worlds.one_lane(2, mode=Mode.SHADOW)
    turned = decide(watching, serving, active.memory)
    assert turned.actions == ()
    # What load wants less of is thought of, and not done.
    calm = replace(turned.memory, lanes={"short": replace(turned.memory.lanes["short"], wanted=2)})
    assert shadow_drains(decide(watching, serving, calm)) == [True]
    # Nor does it go as a plan for fewer comes with the mode: nobody has asked for fewer of a fleet that is only watched.
    fewer = worlds.one_lane(1, mode=Mode.SHADOW)
    assert set(shadow_drains(decide(fewer, serving, active.memory))) == {True}


def test_in_shadow_mode_a_person_who_asks_for_fewer_is_heard_until_it_is_so():
    serving = observation(*TWO, observed("r3"), observed("r4", STATE.PENDING))
    memory = Memory(lanes={"short": LaneMemory(wanted=3, planned=2, requested=2)})
    watched = decide(worlds.one_lane(2, mode=Mode.SHADOW), serving, memory)
    lowered = worlds.one_lane(1, mode=Mode.SHADOW)
    first = decide(lowered, serving, watched.memory)
    assert shadow_drains(first) == [False, False, False]
    came = observation(observed("r1"), observed("r4"))
    assert shadow_drains(decide(lowered, came, first.memory)) == [False]
    scaled = worlds.one_lane(2, mode=Mode.SHADOW, overrides=Overrides(replicas={"short": 2}))
    assert shadow_drains(decide(scaled, observation(*TWO, observed("r3")), watched.memory)) == [False]


def test_in_shadow_mode_what_scale_had_brought_goes_when_it_ends():
    more = worlds.one_lane(2, mode=Mode.SHADOW, overrides=Overrides(replicas={"short": 3}))
    scaled = decide(more, observation(*TWO, observed("r3")), decide(more, observation(*TWO), PLANNED).memory)
    ended = worlds.one_lane(2, mode=Mode.SHADOW)
    assert shadow_drains(decide(ended, observation(*TWO, observed("r3")), scaled.memory)) == [False]


def test_a_fleet_that_was_active_again_keeps_what_it_has_anew():
    serving = observation(*TWO, observed("r3"))
    scaled = worlds.one_lane(2, mode=Mode.SHADOW, overrides=Overrides(replicas={"short": 2}))
    lowered = decide(scaled, observation(*TWO), PLANNED)
    active = decide(worlds.one_lane(2), serving, of_three(lowered))
    watched = decide(worlds.one_lane(2, mode=Mode.SHADOW), serving, of_three(active))
    assert watched.actions == ()


def test_shadow_mode_does_what_a_person_asks():
    to_drain = observed("r1", record_drain_requested=True)
    fleet = worlds.one_lane(2, mode=Mode.SHADOW)
    drained = decide(fleet, observation(to_drain, observed("r2")), PLANNED)
    assert [(type(a), a.shadow) for a in drained.actions] == [(LaunchReplica, False), (DrainReplica, False)]
    scaled = worlds.one_lane(2, mode=Mode.SHADOW, overrides=Overrides(replicas={"short": 3}))
    assert [a.shadow for a in of_kind(decide(scaled, observation(*TWO), PLANNED), LaunchReplica)] == [False]
    fewer = worlds.one_lane(2, mode=Mode.SHADOW, overrides=Overrides(replicas={"short": 1}))
    assert [a.shadow for a in of_kind(decide(fewer, observation(*TWO), PLANNED), DrainReplica)] == [False]
    down = worlds.one_lane(2, mode=Mode.SHADOW, phase=DesiredPhase.DOWN)
    assert all(not a.shadow for a in decide(down, observation(*TWO), PLANNED).actions)

"""Starts that fail for a reason that stays are not tried for ever; others are, with backoff."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.plan.launch_identity import launch_digest
from fleetctl.model.decision import LaneMemory, LaunchReplica, MarkGone, Memory, StopReplica
from fleetctl.model.engine_fault import EngineFault, EngineFaultKind
from fleetctl.model.node import NodeState
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import Subject
from tests.reconcile import worlds
from tests.reconcile.worlds import decide, observation, observed, of_kind

if TYPE_CHECKING:
    from fleetctl.model.observation import ObservedReplica

LINE = "vllm: error: unrecognized arguments: --frobnicate"


def memory_of(*, failures: int = 0, served_as: str = "") -> Memory:
    lane = LaneMemory(wanted=1, planned=1, requested=1, failures=failures, served_as=served_as)
    return Memory(lanes={"short": lane})


def died(kind: EngineFaultKind) -> ObservedReplica:
    fault = EngineFault(kind=kind, line=LINE)
    return observed("r1", ReplicaState.BOOTING, node=NodeState.GONE, exit_reason="exit 2", engine_fault=fault)


def test_a_death_is_recorded_with_the_engines_own_words():
    (gone,) = of_kind(decide(worlds.one_lane(1), observation(died(EngineFaultKind.ARGUMENTS)), memory_of()), MarkGone)
    assert gone.reason == f"died while booting: exit 2: {LINE}"


@pytest.mark.parametrize(
    ("kind", "failures", "is_final"),
    [
        (EngineFaultKind.ARGUMENTS, 0, True), (EngineFaultKind.MODEL, 0, True), (EngineFaultKind.UNKNOWN, 9, False),
        (EngineFaultKind.PORT, 0, False), (EngineFaultKind.PORT, 2, True), (EngineFaultKind.MEMORY, 1, False),
    ],
)  # fmt: skip
def test_what_stays_is_not_tried_again_by_the_same_record(kind, failures, is_final):
    desired = worlds.one_lane(1)
    after = decide(desired, observation(died(kind)), memory_of(failures=failures)).memory
    assert (after.lanes["short"].final_generation == desired.generation) is is_final
    later = decide(desired, observation(now_s=9000), after)
    assert (of_kind(later, LaunchReplica) == []) is is_final
    codes = [reason.code for reason in later.reasons[Subject.lane("short")]]
    assert (ReasonCode.START_IMPOSSIBLE in codes) is is_final


def test_a_new_record_of_the_fleet_is_tried():
    desired = worlds.one_lane(1)
    after = decide(desired, observation(died(EngineFaultKind.ARGUMENTS)), memory_of()).memory
    assert of_kind(decide(replace(desired, generation=2), observation(now_s=9000), after), LaunchReplica)


def test_a_lane_that_has_served_as_it_is_started_now_goes_on_trying():
    desired = worlds.one_lane(1)
    launched_as = launch_digest(desired.profile.lane("short"), desired.plan.lane("short"))
    after = decide(desired, observation(died(EngineFaultKind.HUB_ACCESS)), memory_of(served_as=launched_as)).memory
    assert of_kind(decide(desired, observation(now_s=9000), after), LaunchReplica)
    assert after.lanes["short"].engine_fault is not None


def test_a_new_record_of_the_fleet_begins_without_the_failures_of_the_earlier_one():
    desired = worlds.one_lane(1)
    memory = memory_of(failures=7)
    after = decide(desired, observation(died(EngineFaultKind.UNKNOWN)), memory).memory
    assert after.lanes["short"].failures == 8
    assert of_kind(decide(desired, observation(now_s=5), after), LaunchReplica) == []
    mended = decide(replace(desired, generation=2), observation(now_s=5), after)
    assert of_kind(mended, LaunchReplica)
    assert (mended.memory.lanes["short"].failures, mended.memory.lanes["short"].engine_fault) == (0, None)


def test_what_an_earlier_record_had_ordered_says_nothing_of_the_mended_one():
    desired = replace(worlds.one_lane(1), generation=2, changed_at=worlds.at(10))
    after = decide(desired, observation(died(EngineFaultKind.ARGUMENTS), now_s=20), memory_of()).memory
    assert (after.lanes["short"].failures, after.lanes["short"].final_generation) == (0, 0)


def test_a_replica_that_will_never_be_ready_is_stopped_and_its_lane_not_tried_again():
    desired = worlds.one_lane(1)
    fault = EngineFault(kind=EngineFaultKind.MODEL, line="no weights")
    stuck = observed("r1", ReplicaState.BOOTING, healthy=False, engine_fault=fault)
    decision = decide(desired, observation(stuck), memory_of())
    (stop,) = of_kind(decision, StopReplica)
    assert (stop.code, stop.fault) == (ReasonCode.START_FAILED, "its engine has failed to start: no weights")
    assert of_kind(decision, LaunchReplica) == []
    assert decision.memory.lanes["short"].final_generation == desired.generation


def test_what_serves_is_not_stopped_for_what_its_log_says():
    fault = EngineFault(kind=EngineFaultKind.MODEL, line="no weights")
    for state in (ReplicaState.READY, ReplicaState.WARMING):
        decision = decide(worlds.one_lane(1), observation(observed("r1", state, engine_fault=fault)), memory_of())
        assert of_kind(decision, StopReplica) == []

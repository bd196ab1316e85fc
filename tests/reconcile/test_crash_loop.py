"""A replica whose engine its machine starts no more is ended with the reason, in whatever state, and another is ordered."""

from __future__ import annotations

import pytest

from fleetctl.model.crash_loop import CrashLoop
from fleetctl.model.decision import LaneMemory, LaunchReplica, Memory, StopReplica
from fleetctl.model.engine_fault import EngineFault, EngineFaultKind
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from tests.reconcile import worlds
from tests.reconcile.worlds import decide, observation, observed, of_kind

LOOP = CrashLoop(ends=3, within_s=600.0, exit_reason="exit 1")
FAULT = EngineFault(kind=EngineFaultKind.UNKNOWN, line="RuntimeError: NCCL error")
REASON = "its engine ended 3 times in 10m: exit 1: RuntimeError: NCCL error"


def memory_of() -> Memory:
    return Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})


@pytest.mark.parametrize(
    "state", [ReplicaState.BOOTING, ReplicaState.WARMING, ReplicaState.READY, ReplicaState.DRAINING]
)
def test_it_is_stopped_with_the_reason_and_its_neighbour_left_alone(state: ReplicaState) -> None:
    # The provider can restart engines: its machine has, and that was of no use.
    looping = observed("r1", state, crash_loop=LOOP.text, engine_fault=FAULT, can_restart=True)
    decision = decide(worlds.one_lane(2), observation(looping, observed("r2", ReplicaState.READY)), memory_of())
    (stop,) = of_kind(decision, StopReplica)
    assert (stop.replica_id, stop.code, stop.fault) == ("r1", ReasonCode.CRASH_LOOP, REASON)


@pytest.mark.parametrize("state", [ReplicaState.PENDING, ReplicaState.STOPPING])
def test_one_that_has_no_node_yet_or_that_ends_anyway_is_not(state: ReplicaState) -> None:
    looping = observed("r1", state, crash_loop=LOOP.text, engine_fault=FAULT)
    stops = of_kind(decide(worlds.one_lane(1), observation(looping), memory_of()), StopReplica)
    assert ReasonCode.CRASH_LOOP not in {each.code for each in stops}


def test_a_start_that_looped_is_a_failed_start_and_backs_off_the_next() -> None:
    looping = observed("r1", ReplicaState.BOOTING, crash_loop=LOOP.text, engine_fault=FAULT)
    decision = decide(worlds.one_lane(1), observation(looping), memory_of())
    assert decision.memory.lanes["short"].failures == 1
    assert of_kind(decision, LaunchReplica) == []


def test_one_that_looped_soon_after_it_was_ready_died_early() -> None:
    looping = observed(
        "r1", ReplicaState.READY, crash_loop=LOOP.text, engine_fault=FAULT, record_created_at=worlds.at(-20)
    )
    decision = decide(worlds.one_lane(1), observation(looping, now_s=30), memory_of())
    lane = decision.memory.lanes["short"]
    assert (lane.failures, lane.early_deaths) == (0, 1)

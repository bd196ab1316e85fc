"""A node that somebody else takes from an engine that works: an end, and no failure of anybody's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.core.disruption import notice_text
from fleetctl.engine_kit.start_faults import had_no_word, killed_by
from fleetctl.model.decision import DrainReplica, LaneMemory, LaunchReplica, MarkGone, Memory
from fleetctl.model.engine_fault import EngineFaultKind
from fleetctl.model.node import NodeState, Notice, NoticeKind
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from tests.reconcile import worlds
from tests.reconcile.worlds import decide, observation, observed, of_kind

BY = "the eviction API"
MEMORY = Memory(lanes={"short": LaneMemory(wanted=1, planned=1, requested=1)})


@pytest.mark.parametrize("state", [ReplicaState.BOOTING, ReplicaState.READY])
def test_an_evicted_replica_is_gone_and_says_by_what_and_another_is_launched_at_once(state):
    gone = observed("r1", state, node=NodeState.GONE, exit_reason="EvictionByEvictionAPI", taken_by=BY)
    decision = decide(worlds.one_lane(1), observation(gone), MEMORY)
    (end,) = of_kind(decision, MarkGone)
    assert (end.failed, end.code, end.reason) == (False, ReasonCode.EVICTED, f"evicted while {state} by {BY}")
    assert decision.memory.lanes["short"].failures == 0  # it backs nothing off
    assert of_kind(decision, LaunchReplica)


@pytest.mark.parametrize("state", [ReplicaState.READY, ReplicaState.DRAINING])
def test_a_preempted_replica_names_who_took_its_place_whether_or_not_it_had_begun_to_leave(state):
    notice = Notice(kind=NoticeKind.PREEMPTION, deadline=worlds.at(1005), is_certain=True, taker="r4 of lane short")
    gone = observed("r1", state, node=NodeState.GONE, exit_reason="PreemptionByScheduler", notice=notice)
    (end,) = of_kind(decide(worlds.one_lane(1), observation(gone), MEMORY), MarkGone)
    assert end.reason == "preempted by r4 of lane short"


def test_one_that_nobody_is_known_to_have_taken_has_died():
    gone = observed("r1", ReplicaState.BOOTING, node=NodeState.GONE, exit_reason="deleted")
    decision = decide(worlds.one_lane(1), observation(gone), MEMORY)
    (end,) = of_kind(decision, MarkGone)
    assert (end.failed, end.code) == (True, ReasonCode.DIED)
    assert decision.memory.lanes["short"].failures == 1


def test_one_that_leaves_for_an_eviction_says_so_and_speaks_of_no_spot_node():
    notice = Notice(kind=NoticeKind.INTERRUPTION, deadline=worlds.at(1005), is_certain=True, taken_by=BY)
    seen = observed("r1", notice=notice, notice_deadline=notice.deadline, healthy=False)
    (drained,) = of_kind(decide(worlds.one_lane(1), observation(seen, now_s=1000), MEMORY), DrainReplica)
    assert drained.code is ReasonCode.NODE_NOTICE
    assert drained.reason.startswith(f"eviction notice: the node is taken in 5s by {BY}")
    assert notice_text(notice, worlds.at(1000)) == f"eviction notice in 5s, by {BY}"
    assert notice_text(replace(notice, taken_by=""), worlds.at(1000)) == "interruption notice in 5s"


def test_memory_that_ran_out_is_said_with_what_to_do_and_with_no_line_of_the_log():
    reason = "OOMKilled, limit 16GiB"
    assert had_no_word(reason)
    fault = killed_by(reason, log_tail="INFO: Application startup complete.")
    assert fault.kind is EngineFaultKind.MEMORY
    assert "raise its container's limit" in fault.line
    assert "startup" not in fault.line

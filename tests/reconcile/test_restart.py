"""An engine that has ceased to work is started anew on its node before that is given up; and where a person asks for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.core.transitions import restart_answered, transition
from fleetctl.model.decision import (
    AdmitReplica,
    DrainReplica,
    LaunchReplica,
    MarkBooting,
    StopReplica,
    UndrainReplica,
    WarmReplica,
)
from fleetctl.model.desired import DesiredPhase, Overrides
from fleetctl.model.engine_fault import EngineFault, EngineFaultKind
from fleetctl.model.engine_restart import EngineRestart, RestartPhase
from fleetctl.model.node import NodeState, Notice, NoticeKind
from fleetctl.model.profile import Mode
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState as STATE  # noqa: N814  # as the other tests of reconcile have it
from fleetctl.model.restart_action import RestartReplica
from tests.reconcile import worlds
from tests.reconcile.test_lifecycle import settled
from tests.reconcile.worlds import at, decide, observation, observed, of_kind

if TYPE_CHECKING:
    from fleetctl.model.observation import ObservedReplica

HUNG: dict[str, Any] = {"healthy": False, "record_ready_at": at(0), "record_changed_at": at(3500)}
JUST_REQUESTED = worlds.one_lane(2, overrides=Overrides(restarts={"r1": 1}))


def hung(**changes: Any) -> ObservedReplica:
    """Return a replica that has been out of rotation for longer than one that recovers is, where engines can be restarted."""
    return observed("r1", STATE.BOOTING, **({"can_restart": True} | HUNG | changes))


def under_way(
    phase: RestartPhase = RestartPhase.STARTING, *, by_operator: bool = False, since_s: float = 3590, **changes: Any
) -> ObservedReplica:
    restart = EngineRestart(at=at(since_s), by_operator=by_operator, started_before=at(3500), phase=phase)
    own: dict[str, Any] = {"record_restart": restart, "record_changed_at": at(since_s), "healthy": None}
    return hung(**(own | changes))


def test_a_hung_engine_is_restarted_on_its_node_and_none_is_ordered_meanwhile():
    decision = decide(worlds.one_lane(2), observation(hung(), observed("r2")), settled(2))
    (restart,) = decision.actions
    assert isinstance(restart, RestartReplica)
    assert (restart.replica_id, restart.by_operator, restart.code) == ("r1", False, ReasonCode.RECOVERY_OVERDUE)
    # One that its machine has started anew since it left rotation is not ended once more.
    assert restart.started_before == at(3500)
    record = transition(hung().record, restart, now=at(3600))
    assert (record.state, record.is_restarting, record.node_id) == (STATE.BOOTING, True, "node-r1")


def test_nobody_is_ordered_for_one_that_leaves_rotation_and_may_yet_be_restarted():
    seen = observation(observed("r1", consecutive_failures=3, can_restart=True), observed("r2"))
    decision = decide(worlds.one_lane(2), seen, settled(2))
    assert [type(a) for a in decision.actions] == [MarkBooting]


@pytest.mark.parametrize(
    "changes",
    [
        {"can_restart": False},
        {"restart_failed": True},
        {"node": NodeState.STOPPING},
        {"notice": Notice(kind=NoticeKind.REBALANCE, deadline=None, is_certain=False)},
        {"engine_fault": EngineFault(kind=EngineFaultKind.ACCELERATOR, line="CUDA error: device-side assert")},
        {"record_restart": EngineRestart(at=at(10), by_operator=False, started_before=at(5), phase=RestartPhase.OVER)},
    ],
    ids=["no-capability", "failed-lately", "stopping", "noticed", "gpu", "restarted-before"],
)
def test_where_that_is_impossible_or_was_tried_the_node_is_replaced_as_ever(changes):
    decision = decide(worlds.one_lane(2), observation(hung(**changes), observed("r2")), settled(2))
    assert of_kind(decision, RestartReplica) == []
    assert [a.replica_id for a in of_kind(decision, StopReplica)] == ["r1"]
    assert len(of_kind(decision, LaunchReplica)) == 1


def test_one_that_turns_unhealthy_again_and_again_drains_and_is_restarted_then():
    fleet, memory = worlds.one_lane(2), replace(settled(2), unhealthy_count={"r1": 2})
    failing = observed("r1", consecutive_failures=3, can_restart=True, in_flight=2)
    first = decide(fleet, observation(failing, observed("r2")), memory)
    (drain,) = first.actions
    assert (type(drain), drain.code) == (DrainReplica, ReasonCode.UNHEALTHY_AGAIN)
    draining = observed(
        "r1",
        STATE.DRAINING,
        can_restart=True,
        in_flight=2,
        record_drain_code=ReasonCode.UNHEALTHY_AGAIN,
        record_drain_deadline=at(3700),
    )
    assert decide(fleet, observation(draining, observed("r2")), first.memory).actions == ()
    late = decide(fleet, observation(draining, observed("r2"), now_s=3701), first.memory)
    assert [type(a) for a in late.actions] == [RestartReplica]


def test_while_the_provider_restarts_it_what_the_old_engine_says_counts_for_nothing():
    seen = under_way(RestartPhase.REQUESTED, restarting=True, healthy=True)
    assert decide(worlds.one_lane(2), observation(seen, observed("r2")), settled(2)).actions == ()


def test_a_restarted_engine_has_the_time_of_a_start_and_is_warmed_and_admitted():
    fleet = worlds.one_lane(2)
    starts = under_way(since_s=3600 - 59, healthy=False)
    assert decide(fleet, observation(starts, observed("r2")), settled(2)).actions == ()
    (warm,) = of_kind(decide(fleet, observation(under_way(healthy=True), observed("r2")), settled(2)), WarmReplica)
    assert "after its restart" in warm.reason
    warmed = under_way(record_state=STATE.WARMING, healthy=True, warmed=True)
    (admit,) = of_kind(decide(fleet, observation(warmed, observed("r2")), settled(2)), AdmitReplica)
    record = transition(warmed.record, admit, now=at(3600))
    assert record.restart is not None
    assert (record.restart.phase, record.is_restarting, record.ready_at) == (RestartPhase.OVER, False, at(0))


def test_another_is_ordered_once_a_restart_takes_longer_than_a_new_node_and_it_is_ended_when_a_start_would_be():
    fleet = worlds.one_lane(2)
    boot_s = max(60.0, fleet.plan.lane("short").offering.boot_s)
    late = under_way(since_s=3600 - boot_s - 1, healthy=False)
    decision = decide(fleet, observation(late, observed("r2")), settled(2))
    assert [type(a) for a in decision.actions] == [LaunchReplica]
    overdue = under_way(since_s=3600 - fleet.profile.control.start_timeout_s - 1, healthy=False)
    (stop,) = of_kind(decide(fleet, observation(overdue, observed("r2")), settled(2)), StopReplica)
    assert (stop.code, "after its restart" in stop.fault) == (ReasonCode.START_OVERDUE, True)


def test_one_that_could_not_be_restarted_is_replaced():
    record = restart_answered(under_way(RestartPhase.REQUESTED).record, fault="no agent")
    failed = hung(record_restart=record.restart, record_reason=record.reason)
    decision = decide(worlds.one_lane(2), observation(failed, observed("r2")), settled(2))
    (stop,) = of_kind(decision, StopReplica)
    assert (stop.code, "no agent" in stop.fault) == (ReasonCode.RESTART_FAILED, True)
    assert len(of_kind(decision, LaunchReplica)) == 1


def test_an_order_that_a_killed_controller_may_not_have_given_is_given_again_for_the_same_engine():
    seen = observation(under_way(RestartPhase.REQUESTED), observed("r2"))
    (again,) = of_kind(decide(worlds.one_lane(2), seen, settled(2)), RestartReplica)
    assert (again.code, again.started_before) == (ReasonCode.RESTART_LOST, at(3500))


def test_a_persons_order_drains_it_first_and_is_followed_once():
    serving = observed("r1", can_restart=True)
    (drain,) = decide(JUST_REQUESTED, observation(serving, observed("r2")), settled(2)).actions
    assert (type(drain), drain.code) == (DrainReplica, ReasonCode.RESTART)
    draining = observed(
        "r1", STATE.DRAINING, can_restart=True, excluded=True,
        record_drain_code=ReasonCode.RESTART, record_drain_deadline=at(3700), record_changed_at=at(3599),
    )  # fmt: skip
    (restart,) = of_kind(decide(JUST_REQUESTED, observation(draining, observed("r2")), settled(2)), RestartReplica)
    assert (restart.by_operator, restart.orders) == (True, 1)
    record = transition(draining.record, restart, now=at(3601))
    assert (record.drain_code, record.drain_deadline) == (None, None)
    assert record.restart is not None
    back = observed("r1", can_restart=True, record_restart=replace(record.restart, phase=RestartPhase.OVER))
    assert decide(JUST_REQUESTED, observation(back, observed("r2"), now_s=3700), settled(2)).actions == ()


def test_a_persons_order_is_tried_where_one_failed_lately_and_in_shadow_mode_and_for_one_out_of_rotation():
    serving = observed("r1", can_restart=True, restart_failed=True)
    shadow = replace(worlds.one_lane(2, mode=Mode.SHADOW), overrides=JUST_REQUESTED.overrides)
    assert [a.shadow for a in of_kind(decide(shadow, observation(serving, observed("r2"))), DrainReplica)] == [False]
    recovering = hung(record_changed_at=at(3599))
    (restart,) = decide(JUST_REQUESTED, observation(recovering, observed("r2")), settled(2)).actions
    assert (type(restart), restart.code) == (RestartReplica, ReasonCode.OPERATOR)


def test_a_persons_restart_that_fails_leaves_the_engine_as_it_was():
    requested = under_way(RestartPhase.REQUESTED, by_operator=True)
    assert requested.record.restart is not None
    failed = restart_answered(
        replace(requested.record, restart=replace(requested.record.restart, orders=1)), fault="no agent"
    )
    healthy = hung(record_restart=failed.restart, healthy=True, record_changed_at=at(3599))
    assert [type(a) for a in decide(JUST_REQUESTED, observation(healthy, observed("r2")), settled(2)).actions] == [
        WarmReplica
    ]


def test_one_that_drains_for_a_restart_that_is_not_to_be_had_serves_on():
    draining = observed("r1", STATE.DRAINING, record_drain_code=ReasonCode.RESTART, record_drain_deadline=at(3700))
    (undrain,) = decide(JUST_REQUESTED, observation(draining, observed("r2")), settled(2)).actions
    assert isinstance(undrain, UndrainReplica)


def test_down_ends_what_restarts():
    leaving = replace(worlds.one_lane(2), phase=DesiredPhase.DOWN)
    (stop,) = of_kind(decide(leaving, observation(under_way())), StopReplica)
    assert stop.code is ReasonCode.FLEET_DOWN


@pytest.mark.parametrize("code", [ReasonCode.RESTART, ReasonCode.UNHEALTHY_AGAIN, ReasonCode.OPERATOR])
def test_nobody_comes_back_from_a_drain_while_the_fleet_goes_down(code):
    leaving = replace(JUST_REQUESTED, phase=DesiredPhase.DOWN)
    draining = observed("r1", STATE.DRAINING, can_restart=True, excluded=True, record_drain_code=code)
    assert [type(a) for a in decide(leaving, observation(draining)).actions] == [StopReplica]


def test_the_clock_that_is_set_moves_a_restart_along():
    from fleetctl.core.clock_steps import shifted_replica

    moved = shifted_replica(under_way().record, timedelta(hours=1))
    assert moved.restart is not None
    assert moved.restart.at == at(3590 + 3600)

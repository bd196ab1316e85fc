"""A frozen lane: no change by choice; what dies is replaced, notices are respected, the ladder protects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.core.expiry import ended, in_force, next_end, with_clock_set
from fleetctl.core.status import wanted_replicas
from fleetctl.model.decision import AssignReplica, DrainReplica, LaneMemory, LaunchReplica, MarkGone, Memory
from fleetctl.model.desired import WHOLE_FLEET, Cordon, Overrides, Terms
from fleetctl.model.node import NodeState
from fleetctl.model.reason import ReasonCode
from tests.reconcile.worlds import (
    EPOCH,
    at,
    decide,
    observation,
    observed,
    of_kind,
    one_lane,
    reason_of,
    snapshot,
    traffic,
)

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired

FROZEN = Overrides(freezes={WHOLE_FLEET: Terms(by="alice", since=EPOCH, reason="launch")})
SETTLED = Memory(lanes={"short": LaneMemory(wanted=2, planned=2)})


def frozen(**changes: Any) -> Desired:
    return one_lane(overrides=replace(FROZEN, **changes))


def test_a_frozen_lane_is_not_scaled_up_however_it_is_pressed():
    pressed = observation(
        observed("r1"),
        observed("r2"),
        gateway=snapshot(traffic("short", queued=40, ttft_s=2.0, rps=50.0)),
    )
    decision = decide(frozen(), pressed, SETTLED)
    memory = decision.memory
    for second in range(0, 120, 5):
        decision = decide(frozen(), pressed, memory, now_s=3600.0 + second)
        assert of_kind(decision, LaunchReplica) == []
        memory = decision.memory
    assert memory.lanes["short"].wanted == 2
    assert "held at 2: frozen by alice: launch" in reason_of(decision, "short")


def test_it_gives_nothing_up_and_gives_nothing_away():
    seen = observation(*(observed(f"r{n}") for n in range(1, 6)))
    decision = decide(frozen(), seen, SETTLED)
    assert of_kind(decision, DrainReplica) == []
    assert of_kind(decision, AssignReplica) == []


def test_what_dies_is_replaced():
    seen = observation(observed("r1"), observed("r2", node=NodeState.GONE))
    decision = decide(frozen(), seen, SETTLED)
    assert len(of_kind(decision, MarkGone)) == 1
    assert [launch.replaces for launch in of_kind(decision, LaunchReplica)] == ["r2"]


def test_a_notice_is_respected():
    seen = observation(observed("r1"), observed("r2", notice_deadline=at(5.0)))
    decision = decide(frozen(), seen, SETTLED)
    assert [drain.code for drain in of_kind(decision, DrainReplica)] == [ReasonCode.SPOT_NOTICE]
    assert len(of_kind(decision, LaunchReplica)) == 1


def test_an_operators_count_goes_before_a_freeze():
    decision = decide(frozen(replicas={"short": 3}), observation(observed("r1"), observed("r2")), SETTLED)
    assert len(of_kind(decision, LaunchReplica)) == 1


def test_a_count_that_ends_within_a_freeze_stays():
    memory = decide(frozen(replicas={"short": 3}), observation(observed("r1"), observed("r2")), SETTLED).memory
    fleet = frozen()
    decision = decide(fleet, observation(*(observed(f"r{n}") for n in (1, 2, 3))), memory)
    assert decision.memory.lanes["short"].wanted == 3
    assert wanted_replicas(fleet, fleet.profile.lane("short"), decision.memory.lanes["short"]) == 3
    thawed = decide(one_lane(), observation(*(observed(f"r{n}") for n in (1, 2, 3))), decision.memory)
    assert thawed.memory.lanes["short"].wanted == 2


def test_a_new_fleet_that_is_frozen_comes_up_as_planned():
    decision = decide(frozen(), observation())
    assert len(of_kind(decision, LaunchReplica)) == 2


def test_only_the_lane_that_is_frozen_is_held():
    overrides = Overrides(freezes={"long": Terms(reason="x")})
    seen = observation(*(observed(f"r{n}") for n in range(1, 6)))
    assert of_kind(decide(one_lane(overrides=overrides), seen, SETTLED), DrainReplica)


HELD = Overrides(
    replicas={"short": 3, "long": 2},
    replicas_terms={"short": Terms(until=at(60.0)), "long": Terms()},
    step_terms={},
    freezes={WHOLE_FLEET: Terms(by="alice", until=at(120.0), is_duration=True)},
    cordons={"zone/a": Cordon(terms=Terms(until=at(180.0)))},
)


@pytest.mark.parametrize(
    ("seconds", "actions"),
    [(59.9, []), (60.0, ["scale"]), (120.0, ["scale", "thaw"]), (180.0, ["scale", "thaw", "undrain"])],
)
def test_each_ends_at_its_time_and_is_named_once(seconds, actions):
    assert [each.action for each in ended(HELD, at(seconds))] == actions
    left = in_force(HELD, at(seconds))
    assert ended(left, at(seconds)) == ()
    assert left.replicas == ({"short": 3, "long": 2} if seconds < 60 else {"long": 2})
    assert in_force(left, at(seconds)) is left


def test_the_next_end_is_known():
    assert next_end(HELD, at(0.0)) == at(60.0)
    assert next_end(HELD, at(200.0)) is None


def test_a_clock_that_is_set_moves_what_was_to_last_and_not_what_ends_by_the_clock():
    moved = with_clock_set(HELD, at(3600.0) - EPOCH)
    assert moved.freezes[WHOLE_FLEET].until == at(3720.0)
    assert moved.replicas_terms["short"].until == at(60.0)

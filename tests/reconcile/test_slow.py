"""A replica that stays slow is replaced: its substitute first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.core.reconcile import reconcile
from fleetctl.core.reconcile.slow import slow_reason
from fleetctl.model.decision import DrainReplica, LaunchReplica, Memory
from fleetctl.model.gateway import Slowness
from fleetctl.model.profile import Mode
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from tests.reconcile.worlds import at, observation, observed, one_lane

if TYPE_CHECKING:
    from fleetctl.model.decision import Decision
    from fleetctl.model.observation import ObservedReplica

NOW = at(3600.0)
SLOW = Slowness(tpot_s=0.12, peers_tpot_s=0.04, for_s=75.0, ejections=2, is_confirmed=True)


def decide(*replicas: ObservedReplica, **changes: Any) -> Decision:
    fleet = one_lane(on_demand=3, bounds=(3, 8), **changes)
    return reconcile(fleet, observation(*replicas), Memory(), NOW)


def fleet_of(*others: ObservedReplica, slowness: Slowness | None = SLOW) -> tuple[ObservedReplica, ...]:
    return (observed("r1", slowness=slowness), observed("r2"), observed("r3"), *others)


@pytest.mark.parametrize(
    ("ejections", "is_confirmed", "is_replaced"),
    [(1, False, False), (2, False, False), (2, True, True), (3, False, True)],
)
def test_it_is_replaced_once_its_probes_are_slow_or_it_was_found_slow_three_times(ejections, is_confirmed, is_replaced):
    slowness = replace(SLOW, ejections=ejections, is_confirmed=is_confirmed)
    assert (slow_reason(observed("r1", slowness=slowness)) is not None) is is_replaced


def test_a_substitute_is_ordered_before_it_is_drained():
    decision = decide(*fleet_of())
    (launch,) = (action for action in decision.actions if isinstance(action, LaunchReplica))
    assert (launch.replaces, launch.code) == ("r1", ReasonCode.REPLICA_REPLACED)
    assert not any(isinstance(action, DrainReplica) for action in decision.actions)


@pytest.mark.parametrize("state", [ReplicaState.PENDING, ReplicaState.BOOTING, ReplicaState.WARMING])
def test_while_the_substitute_starts_nothing_more_is_done(state):
    assert decide(*fleet_of(observed("r4", state))).actions == ()


def test_it_is_drained_once_the_substitute_serves_and_why_says_how_slow_it_was():
    decision = decide(*fleet_of(observed("r4")))
    (drain,) = decision.actions
    assert isinstance(drain, DrainReplica)
    assert (drain.replica_id, drain.code) == ("r1", ReasonCode.SLOW_REPLICA)
    assert "3.0 times as slow as its peers (120 ms a token against 40 ms), left alone 2 times in 1m15s" in drain.reason


def test_one_that_is_only_left_alone_stays():
    assert decide(*fleet_of(slowness=replace(SLOW, ejections=1, is_confirmed=False))).actions == ()


def test_two_slow_ones_leave_as_far_as_others_serve_in_their_stead():
    both = (observed("r1", slowness=SLOW), observed("r2", slowness=SLOW), observed("r3"))
    assert sum(isinstance(action, LaunchReplica) for action in decide(*both).actions) == 2
    drained = [a for a in decide(*both, observed("r4")).actions if isinstance(a, DrainReplica)]
    assert [action.replica_id for action in drained] == ["r1"]


def test_in_shadow_mode_it_is_only_journalled():
    decision = decide(*fleet_of(), mode=Mode.SHADOW)
    assert all(action.shadow for action in decision.actions)

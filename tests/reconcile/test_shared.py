"""What a fleet's nodes share: when it is prepared and torn down, and what waits for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, strategies as st

from fleetctl.core.reconcile.limits import SHARED_GIVEN_UP_S
from fleetctl.core.reconcile.shared import SharedDecision, prepare_shared, teardown_shared
from fleetctl.model.decision import (
    AbandonShared,
    AnyAction,
    Decision,
    LaunchReplica,
    Memory,
    PrepareShared,
    SharedAction,
    TeardownShared,
)
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.observation import Observation, ProviderCondition, ProviderFault
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.shared import ObservedShared, SharedState
from fleetctl.model.subject import FLEET, Subject
from fleetctl.testing.samples import shared_resources
from tests.reconcile import worlds
from tests.reconcile.worlds import at, decide, observation, observed, of_kind

STATE = SharedState
KINDS = ("network", "queue", "role")
DOWN = worlds.one_lane(2, phase=DesiredPhase.DOWN)


def shared(*states: SharedState, **changes: Any) -> tuple[ObservedShared, ...]:
    """Return what is shared in these states; the changes are the last one's."""
    resources = shared_resources(KINDS, owner="owner-1", fleet="demo")
    seen = [ObservedShared(resource=r, state=s) for r, s in zip(resources, states, strict=False)]
    return (*seen[:-1], replace(seen[-1], **changes))


def seen_with(*states: SharedState, replicas: tuple[Any, ...] = (), **changes: Any) -> Observation:
    return replace(observation(*replicas), shared=shared(*states, **changes))


def shared_actions(decision: Decision) -> list[tuple[type[AnyAction], str]]:
    return [(type(a), a.resource.kind) for a in decision.actions if isinstance(a, SharedAction)]


def test_the_first_that_is_missing_is_prepared_and_no_node_is_ordered():
    decision = decide(worlds.one_lane(2), seen_with(STATE.PREPARED, STATE.NEEDED, STATE.NEEDED), Memory())
    assert shared_actions(decision) == [(PrepareShared, "queue")]
    assert of_kind(decision, LaunchReplica) == []
    assert [r.message for r in decision.reasons[FLEET]] == ["no node is ordered until queue is prepared"]
    assert decision.reasons[FLEET][0].code is ReasonCode.SHARED_NEEDED
    assert decision.reasons[Subject.lane("short")][-1].code is ReasonCode.LAUNCH_BLOCKED


def test_nodes_are_ordered_once_all_are_prepared():
    decision = decide(worlds.one_lane(2), seen_with(STATE.PREPARED, STATE.PREPARED), Memory())
    assert shared_actions(decision) == []
    assert len(of_kind(decision, LaunchReplica)) == 2
    assert decision.reasons[FLEET] == ()


def test_what_is_under_way_or_may_still_have_an_effect_is_not_crossed():
    for changes in ({"under_way": True}, {"settles_at": at(3601)}, {"failures": 2, "failed_at": at(3598)}):
        for state in (STATE.PREPARING, STATE.TEARING_DOWN):
            seen = seen_with(state, **changes)
            assert shared_actions(decide(worlds.one_lane(2), seen, Memory())) == []
            assert shared_actions(decide(DOWN, seen, Memory())) == []


def test_an_open_intent_is_carried_out_again_after_its_backoff_and_the_fault_is_said():
    seen = seen_with(STATE.PREPARING, failures=2, failed_at=at(3590), fault="quota vpc: 5 of 5")
    decision = decide(worlds.one_lane(2), seen, Memory())
    assert shared_actions(decision) == [(PrepareShared, "network")]
    assert decision.reasons[FLEET][-1].message.endswith("until network is prepared: quota vpc: 5 of 5")


def test_nothing_is_prepared_without_credentials():
    refused = ProviderCondition(fault=ProviderFault.CREDENTIALS, message="the credentials have expired")
    seen = replace(seen_with(STATE.NEEDED), provider_conditions=(refused,))
    decision = decide(worlds.one_lane(2), seen, Memory())
    assert shared_actions(decision) == []
    assert decision.reasons[FLEET][0].message == "the credentials have expired"


def test_nothing_is_torn_down_before_the_last_node_is_gone():
    for seen in (
        seen_with(STATE.PREPARED, replicas=(observed("r1", ReplicaState.STOPPING),)),
        replace(seen_with(STATE.PREPARED), listing_ok=False),
    ):
        decision = decide(DOWN, seen, Memory())
        assert shared_actions(decision) == []
        assert not decision.is_down


def test_the_last_prepared_is_torn_down_first_and_then_the_fleet_is_down():
    gone = replace(seen_with(STATE.PREPARED, STATE.PREPARED, STATE.NEEDED), gateway=None, gateway_alive=False)
    decision = decide(DOWN, gone, Memory())
    assert shared_actions(decision) == [(TeardownShared, "queue")]
    assert not decision.is_down
    assert decide(DOWN, replace(gone, shared=shared(STATE.NEEDED, STATE.NEEDED)), Memory()).is_down


def test_what_cannot_be_torn_down_for_long_is_abandoned_with_its_token():
    began_at = at(3600 - SHARED_GIVEN_UP_S)
    seen = seen_with(STATE.TEARING_DOWN, began_at=began_at, failures=7, failed_at=at(3599), fault="in use")
    decision = decide(DOWN, seen, Memory())
    assert shared_actions(decision) == [(AbandonShared, "network")]
    (action,) = of_kind(decision, AbandonShared)
    assert action.subject == FLEET
    assert "in use" in action.reason
    assert "owner-1/demo/network" in action.reason
    untried = replace(seen, shared=shared(STATE.TEARING_DOWN, began_at=began_at))
    assert shared_actions(decide(DOWN, untried, Memory())) == [(TeardownShared, "network")]


def test_what_the_provider_names_no_longer_is_not_prepared_and_still_torn_down():
    seen = seen_with(STATE.TEARING_DOWN, is_needed=False)
    assert prepare_shared(seen, seen.at).reasons == ()
    assert shared_actions(decide(DOWN, seen, Memory())) == [(TeardownShared, "network")]


@given(st.lists(st.sampled_from(SharedState), min_size=1, max_size=3), st.booleans())
def test_following_the_decisions_ends_with_all_prepared_or_all_gone(states: list[SharedState], is_up: bool) -> None:
    def decided() -> SharedDecision:
        return prepare_shared(seen, seen.at) if is_up else teardown_shared(seen, seen.at, no_node_left=True)

    seen, done = seen_with(*states), []
    for _ in states:
        decision = decided()
        assert len(decision.actions) <= 1
        for action in decision.actions:
            done.append(action.resource.kind)
            after = STATE.PREPARED if is_up else STATE.NEEDED
            followed = (replace(s, state=after) if s.resource == action.resource else s for s in seen.shared)
            seen = replace(seen, shared=tuple(followed))
    assert {s.state for s in seen.shared} == {STATE.PREPARED if is_up else STATE.NEEDED}
    assert done == sorted(done, key=KINDS.index, reverse=not is_up)
    assert decided() == SharedDecision()

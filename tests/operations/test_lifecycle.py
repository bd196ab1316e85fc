from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from fleetctl.errors import BudgetExceededError, ConfigError, NotFoundError, UnavailableError
from fleetctl.model.desired import Overrides, Phase
from fleetctl.model.profile import CapacitySpec, GatewaySpec
from fleetctl.model.replica import ReplicaState
from fleetctl.operations import lifecycle, supervise
from fleetctl.operations.lifecycle import Change
from fleetctl.operations.pending import pending
from fleetctl.ports.store import IntentState
from fleetctl.testing import samples

LOCAL = {"provider": "local"}


def test_up_creates_then_changes_nothing_then_applies_the_difference(spoken, store):
    controller = spoken("demo")
    profile, plan = samples.profile(**LOCAL), samples.plan()
    assert lifecycle.up(profile, plan).change is Change.CREATED
    assert lifecycle.up(profile, plan).change is Change.UNCHANGED
    wider = replace(plan, lanes=(samples.lane_plan("short", on_demand=3), plan.lanes[1]))
    assert not pending(profile, wider).is_empty
    assert lifecycle.up(profile, wider).change is Change.UPDATED
    assert [desired.generation for desired in store.fleets()] == [2]
    assert [entry.action for entry in store.journal("demo")] == ["up", "up"]
    assert controller.wakes == 3


def test_up_lets_go_of_what_was_set_by_hand(spoken, store):
    spoken("demo")
    profile, plan = samples.profile(**LOCAL), samples.plan()
    lifecycle.up(profile, plan)
    store.set_overrides("demo", Overrides(replicas={"short": 5}), now=samples.EPOCH)
    assert pending(profile, plan).overrides == ("short scaled to 5",)
    assert lifecycle.up(profile, plan).change is Change.UPDATED
    assert pending(profile, plan).is_empty


def test_up_brings_a_fleet_that_was_going_down_back(spoken, store):
    spoken("demo")
    profile, plan = samples.profile(**LOCAL), samples.plan()
    lifecycle.up(profile, plan)
    store.set_phase("demo", Phase.DOWN, now=samples.EPOCH)
    assert lifecycle.up(profile, plan).change is Change.CREATED
    assert store.fleet("demo").phase is Phase.UP


@pytest.mark.parametrize(
    ("profile", "plan", "kind", "said"),
    [
        (samples.profile(), samples.plan(), NotFoundError, "no provider named 'fake'"),
        (samples.profile(**LOCAL), samples.plan("other"), ConfigError, "another profile"),
        (
            samples.profile(gateway=GatewaySpec(api_keys=("keyring:fleetctl/me",)), **LOCAL), samples.plan(),
            ConfigError, "'keyring:fleetctl/me' cannot be followed",
        ),
        (
            samples.profile(capacity=CapacitySpec(max_nodes=3), **LOCAL), samples.plan(),
            BudgetExceededError, "takes 4 nodes, over the cap of 3",
        ),
        (
            samples.profile(capacity=CapacitySpec(max_cost_usd_per_hour=1.0), **LOCAL), samples.plan(),
            BudgetExceededError, "over the cap of \\$1.00/h",
        ),
    ],
)  # fmt: skip
def test_up_refuses_before_anything_is_written(profile, plan, kind, said, store):
    with pytest.raises(kind, match=said):
        lifecycle.up(profile, plan)
    assert store.fleets() == ()


def test_a_saved_plan_must_be_of_this_very_profile(store):
    with pytest.raises(ConfigError, match="another profile than 'demo' as it is now"):
        lifecycle.check(samples.profile(**LOCAL), samples.plan(), profile_hash="1" * 64)


def test_up_refuses_a_port_somebody_listens_on(store):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        profile = samples.profile(**LOCAL)
        profile = replace(profile, gateway=replace(profile.gateway, port=taken.getsockname()[1]))
        with pytest.raises(UnavailableError, match="is in use") as caught:
            lifecycle.up(profile, samples.plan())
    assert "--port" in caught.value.hint
    assert store.fleets() == ()


def test_following_up_ends_at_ready_and_says_what_was_missing_at_the_deadline(spoken, store):
    spoken("demo")
    lifecycle.up(samples.profile(**LOCAL), samples.plan())
    with pytest.raises(UnavailableError, match="not ready after 0 s"):
        list(lifecycle.follow_up("demo", timeout_s=0))


def test_down_of_a_fleet_of_which_nothing_lives_just_forgets_it(fleet, store):
    assert lifecycle.down(fleet).phase is Phase.DOWN
    assert list(lifecycle.follow_down(fleet, timeout_s=10)) == []
    assert store.fleet(fleet) is None
    assert list(lifecycle.follow_down(fleet, timeout_s=10)) == []  # again is no error


def test_down_waits_for_the_controller_to_finish(controller, store):
    replica = samples.replica(state=ReplicaState.READY)
    store.begin_replica(replica, samples.node_request(), now=samples.EPOCH)
    lifecycle.down("demo")
    seen = []
    for status in lifecycle.follow_down("demo", timeout_s=20):
        seen.append(sum(lane.live for lane in status.lanes))
        if len(seen) == 2:
            store.settle_intent("token-1", IntentState.DONE, replica=replace(replica, state=ReplicaState.GONE))
            controller.die()
    assert seen[:2] == [1, 1]
    assert store.fleet("demo") is None


def test_a_controller_that_cannot_start_is_quoted(fleet, store):
    store.set_phase(fleet, Phase.DOWN, now=samples.EPOCH)
    store.remove_fleet(fleet)
    with pytest.raises(UnavailableError, match="ended with exit code") as caught:
        supervise.ensure_controller(fleet)
    assert "\n  | " in caught.value.message
    assert "controller.log" in caught.value.hint

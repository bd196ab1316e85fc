from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.core.plan.launch_identity import launch_digest
from fleetctl.errors import (
    AmbiguousOutcomeError,
    BudgetExceededError,
    ConfigError,
    LockHeldError,
    NotFoundError,
    RolloutFailedError,
    UnavailableError,
)
from fleetctl.model.desired import DesiredPhase, Overrides
from fleetctl.model.observation import EngineSignals
from fleetctl.model.profile import CapacitySpec, GatewaySpec, Mode, Profile
from fleetctl.model.replica import ReplicaState
from fleetctl.model.rollout import RolloutPhase, RolloutStatus, rollback_reason
from fleetctl.model.status import ReplicaStatus
from fleetctl.operations import lifecycle
from fleetctl.operations.approval import check_plan, move_refusal
from fleetctl.operations.lifecycle import Change
from fleetctl.operations.pending import pending_changes
from fleetctl.operations.profiles import as_brought_up
from fleetctl.operations.readiness import missing
from fleetctl.ports.store import IntentState, Tombstone
from fleetctl.testing import samples


def test_up_creates_then_changes_nothing_then_applies_the_difference(site, store, host):
    profile, plan = samples.profile(), samples.plan()
    assert lifecycle.up(site, profile, plan).change is Change.CREATED
    assert lifecycle.up(site, profile, plan).change is Change.UNCHANGED
    wider = replace(plan, lanes=(samples.lane_plan("short", on_demand=3), plan.lanes[1]))
    assert not pending_changes(site, profile, wider).is_empty
    assert lifecycle.up(site, profile, wider).change is Change.UPDATED
    assert [desired.generation for desired in store.fleets()] == [2]
    assert [entry.action for entry in store.journal("demo")] == ["up", "up"]
    assert host.calls["wake", "demo"] == 3


def test_up_lets_go_of_what_was_set_by_hand(site, store, host):
    profile, plan = samples.profile(), samples.plan()
    lifecycle.up(site, profile, plan)
    store.set_overrides("demo", Overrides(replicas={"short": 5}), now=samples.EPOCH)
    assert pending_changes(site, profile, plan).overrides == Overrides(replicas={"short": 5})
    assert lifecycle.up(site, profile, plan).change is Change.UPDATED
    assert pending_changes(site, profile, plan).is_empty


def test_up_brings_a_fleet_that_was_going_down_back(site, store, host):
    profile, plan = samples.profile(), samples.plan()
    lifecycle.up(site, profile, plan)
    store.set_phase("demo", DesiredPhase.DOWN, now=samples.EPOCH)
    assert lifecycle.up(site, profile, plan).change is Change.CREATED
    assert store.fleet("demo").phase is DesiredPhase.UP


@pytest.mark.parametrize(
    ("profile", "plan", "kind", "message"),
    [
        (samples.profile(provider="none"), samples.plan(), NotFoundError, "no provider named 'none'"),
        (samples.profile(), samples.plan("other"), ConfigError, "another profile"),
        (
            samples.profile(gateway=GatewaySpec(api_keys=("keyring:fleetctl/me",))), samples.plan(),
            ConfigError, "'keyring:fleetctl/me' cannot be followed",
        ),
        (
            samples.profile(capacity=CapacitySpec(max_nodes=3)), samples.plan(),
            BudgetExceededError, "takes 4 nodes, over the cap of 3",
        ),
        (
            samples.profile(capacity=CapacitySpec(max_cost_usd_per_hour=1.0)), samples.plan(),
            BudgetExceededError, "over the cap of \\$1.00/h",
        ),
    ],
)  # fmt: skip
def test_up_refuses_before_anything_is_written(profile, plan, kind, message, site, store):
    with pytest.raises(kind, match=message):
        lifecycle.up(site, profile, plan)
    assert store.fleets() == ()


def test_a_saved_plan_must_be_of_this_very_profile(site):
    with pytest.raises(ConfigError, match="another profile than 'demo' as it is now"):
        check_plan(site, samples.profile(), samples.plan(), is_exact=True)


def test_up_refuses_a_port_somebody_listens_on(site, store, host):
    host.taken_ports = {samples.profile().gateway.port}
    with pytest.raises(UnavailableError, match="is in use") as caught:
        lifecycle.up(site, samples.profile(), samples.plan())
    assert "--port" in caught.value.hint
    assert store.fleets() == ()
    assert not host.calls["exclusive", "demo"], "the lock's directory would be left of a fleet that never was"


def test_a_fleet_that_lives_holds_its_port_itself(site, host):
    lifecycle.up(site, samples.profile(), samples.plan())
    host.taken_ports = {samples.profile().gateway.port}
    assert lifecycle.up(site, samples.profile(), samples.plan()).change is Change.UNCHANGED


def test_one_operation_at_a_time_works_on_a_fleet(site, store, host):
    host.held.add(("demo", "operation"))
    with pytest.raises(LockHeldError):
        lifecycle.up(site, samples.profile(), samples.plan())
    assert store.fleets() == ()


def test_following_up_ends_at_ready_and_says_what_was_missing_at_the_deadline(site, store, host):
    lifecycle.up(site, samples.profile(), samples.plan())
    with pytest.raises(UnavailableError, match="not ready after 0 s"):
        list(lifecycle.follow_up(site, "demo", timeout_s=0, generation=1))


def test_the_deadline_names_the_starts_that_failed_without_an_engines_word(site, store, host):
    lifecycle.up(site, samples.profile(), samples.plan())
    seen = host.controllers["demo"]()
    failed = samples.replica("r1", state=ReplicaState.FAILED, node_id="n", fault="died while booting: exit 139")
    failing = replace(
        seen,
        lanes=tuple(replace(lane, ready=0, wanted=1, failed_starts=2) for lane in seen.lanes),
        replicas=(ReplicaStatus(record=failed, engine=EngineSignals(), in_flight=0),),
    )
    host.controllers["demo"] = lambda: failing
    with pytest.raises(UnavailableError, match="lane short: 2 starts in a row failed: died while booting: exit 139"):
        list(lifecycle.follow_up(site, "demo", timeout_s=0, generation=seen.generation))


def test_the_deadline_names_orders_that_were_refused_and_nodes_that_wait(site, store, host):
    lifecycle.up(site, samples.profile(), samples.plan())
    seen = host.controllers["demo"]()
    refused = samples.replica(
        "r1", state=ReplicaState.FAILED, node_id="", fault='pods "r1" is forbidden: exceeded quota'
    )
    waiting = samples.replica("r2", state=ReplicaState.BOOTING)
    short = replace(seen.lanes[0], ready=0, wanted=2, failed_starts=1)
    lacking = replace(
        seen,
        lanes=(short, *seen.lanes[1:]),
        replicas=(
            ReplicaStatus(record=refused, engine=EngineSignals(), in_flight=0),
            ReplicaStatus(record=waiting, engine=EngineSignals(), in_flight=0, pending_reason="Unschedulable: no GPU"),
        ),
    )
    host.controllers["demo"] = lambda: lacking
    with pytest.raises(UnavailableError) as caught:
        list(lifecycle.follow_up(site, "demo", timeout_s=0, generation=seen.generation))
    assert 'lane short: 1 start in a row failed: pods "r1" is forbidden: exceeded quota' in caught.value.message
    assert "lane short: r2 waits: Unschedulable: no GPU" in caught.value.message


def test_following_up_waits_its_whole_timeout(site, clock):
    lifecycle.up(site, samples.profile(), samples.plan())
    with pytest.raises(UnavailableError, match="not ready after 60 s"):
        list(lifecycle.follow_up(site, "demo", timeout_s=60, generation=1))
    assert clock.monotonic_s() == pytest.approx(60, abs=0.5)


def test_following_up_does_not_wait_out_its_timeout_where_the_controller_decides_nothing(site, clock, host):
    lifecycle.up(site, samples.profile(), samples.plan())
    seen = host.controllers["demo"]()
    since = clock.now()
    host.controllers["demo"] = lambda: replace(
        seen, at=clock.now(), controller_failing_since=since, reason="the last tick failed: no such table",
        lanes=tuple(replace(lane, ready=0, wanted=1) for lane in seen.lanes),
    )  # fmt: skip
    with pytest.raises(UnavailableError, match="decides nothing: the last tick failed: no such table"):
        list(lifecycle.follow_up(site, "demo", timeout_s=600, generation=1))
    assert 29 < clock.monotonic_s() < 35


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"generation": 1}, "the controller works by generation 1, this is 2"),
        ({"gateway_generation": 1}, "the gateway works by the rules of generation 1, this is 2"),
        ({"gateway_alive": False}, "the gateway does not answer"),
        ({"lanes": 0}, "replicas ready: short 0 of 2"),
    ],
)  # fmt: skip
def test_a_changed_fleet_is_not_ready_before_its_own_generation_is_in_force(changed, message, site, store, fakes):
    lifecycle.up(site, samples.profile(), samples.plan())
    lifecycle.up(site, samples.profile(), replace(samples.plan(), cautions=("changed",)))
    seen = fakes.ready_status("demo")
    if "lanes" in changed:
        changed = {"lanes": (replace(seen.lanes[0], ready=0, wanted=2), *seen.lanes[1:])}
    assert missing(site, replace(seen, **changed), generation=2) == message
    assert missing(site, seen, generation=2) == ""


def test_an_up_in_shadow_mode_does_not_wait_for_a_rollout_that_nobody_makes(site, fakes):
    lifecycle.up(site, samples.profile(), samples.plan())
    rollout = RolloutStatus(
        phase=RolloutPhase.PAUSED, revision=2, stable=1, lanes=(), started_at=samples.EPOCH, ended_at=None
    )
    seen = replace(fakes.ready_status("demo"), rollout=rollout)
    assert "the rollout of revision 2 is paused" in missing(site, seen, generation=1)
    assert missing(site, replace(seen, mode=Mode.SHADOW), generation=1) == ""


def test_no_other_revision_passes_for_the_one_that_is_waited_for(site, store, fakes):
    lifecycle.up(site, samples.profile(), samples.plan())
    rollout = RolloutStatus(
        phase=RolloutPhase.COMPLETE, revision=2, stable=1, lanes=(), started_at=samples.EPOCH, ended_at=samples.EPOCH
    )
    seen = replace(fakes.ready_status("demo"), rollout=rollout, revision=2)
    assert missing(site, seen, generation=1, revision=2) == ""
    assert missing(site, seen, generation=1, revision=3) == "revision 2 is in force, this is 3"
    first = replace(seen, rollout=None, revision=1, is_revision_complete=False)
    assert "revision 1 is not complete: replicas ready: short 2 of 2" in missing(site, first, generation=1, revision=1)
    assert missing(site, replace(first, mode=Mode.SHADOW), generation=1, revision=1) == ""
    # A policy of a third party's need not keep a rollout.
    assert missing(site, replace(seen, rollout=None, revision=None), generation=1, revision=3) == ""


def test_following_up_a_revision_that_was_rolled_back_fails_whatever_the_rollout_is_about_by_then(
    site, store, fakes, host
):
    lifecycle.up(site, samples.profile(), samples.plan())
    changed = replace(samples.plan(), cautions=("changed",))
    lifecycle.up(site, samples.profile(), changed)
    why = rollback_reason(2, 1, "short: r5 cannot start: no such flag")
    store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH, why=why, over=2)
    host.controllers["demo"] = lambda: fakes.ready_status("demo")
    failed = "revision 2 failed: short: r5 cannot start: no such flag; revision 3 took its place"
    with pytest.raises(RolloutFailedError, match=failed):
        list(lifecycle.follow_up(site, "demo", timeout_s=60, generation=2, revision=2))


def test_an_address_is_claimed_only_where_somebody_answers(site, fakes, host):
    lifecycle.up(site, samples.profile(), samples.plan())
    host.is_accepting = False
    assert (
        missing(site, fakes.ready_status("demo"), generation=1) == "nobody takes connections at http://127.0.0.1:8080"
    )


def test_a_living_gateway_is_not_moved_and_nothing_is_written(site, store, host):
    profile, plan = samples.profile(), samples.plan()
    lifecycle.up(site, profile, plan)
    moved = replace(profile, gateway=replace(profile.gateway, port=9090))
    refusal = move_refusal(site, moved)
    assert refusal is not None
    with pytest.raises(ConfigError, match=r"cannot move to http://127\.0\.0\.1:9090 while it runs") as caught:
        lifecycle.up(site, moved, plan)
    assert "--port 8080" in caught.value.hint
    assert (caught.value.message, caught.value.hint) == (refusal.message, refusal.hint)  # which `plan` shows
    assert store.fleet("demo").generation == 1
    host.controllers.clear()
    assert lifecycle.up(site, moved, plan).change is Change.UPDATED


def test_a_port_given_by_option_is_remembered_until_another_is_given(site):
    named = samples.profile()
    given = replace(named, gateway=replace(named.gateway, port=9090, port_is_given=True))
    assert as_brought_up(site, named) == named
    lifecycle.up(site, given, samples.plan())
    assert as_brought_up(site, named) == given
    assert pending_changes(site, as_brought_up(site, named), samples.plan()).is_empty
    other = replace(named, gateway=replace(named.gateway, port=9091, port_is_given=True))
    assert as_brought_up(site, other) == other


def test_replicas_that_keep_their_launch_settings_stay_pending_until_they_are_replaced(site, store):
    profile, plan = samples.profile(), samples.plan()
    lifecycle.up(site, profile, plan)
    started_as = launch_digest(profile.lane("short"), plan.lane("short"))
    replica = samples.replica("r1", lane="short", state=ReplicaState.READY, launch_digest=started_as)
    store.begin_replica(replica, samples.node_request(), now=samples.EPOCH)
    assert pending_changes(site, profile, plan).is_empty
    launch = replace(plan.lanes[0].launch, max_num_seqs=7)
    changed = replace(plan, lanes=(replace(plan.lanes[0], launch=launch), *plan.lanes[1:]))
    assert pending_changes(site, profile, changed).outdated == ("r1",)
    lifecycle.up(site, profile, changed)
    pending = pending_changes(site, profile, changed)
    assert (pending.is_applied, pending.is_empty) == (True, False)
    store.settle_intent("token-1", IntentState.DONE, replica=replace(replica, drain_requested=True))
    assert pending_changes(site, profile, changed).is_empty


def test_following_up_revives_a_controller_that_died(site, host):
    lifecycle.up(site, samples.profile(), samples.plan())
    seen = []
    for status in lifecycle.follow_up(site, "demo", timeout_s=60, generation=1):
        seen.append(status.controller_alive)
        if len(seen) == 1:
            del host.controllers["demo"]
        if seen[-1] and len(seen) > 1:
            break
    assert seen == [True, False, True]


def test_down_of_a_fleet_of_which_nothing_lives_just_forgets_it(site, fleet, store, host):
    assert lifecycle.down(site, fleet).phase is DesiredPhase.DOWN
    assert list(lifecycle.follow_down(site, fleet, timeout_s=10)) == []
    assert store.fleet(fleet) is None
    assert host.calls["ensure_controller", fleet] == 0
    assert host.calls["clean_up", fleet] == 1
    assert list(lifecycle.follow_down(site, fleet, timeout_s=10)) == []  # again is no error


def test_down_fails_where_something_may_be_left(site, fleet, store):
    lifecycle.down(site, fleet)
    store.bury(
        Tombstone(
            token="demo", provider="fake", fleet=fleet,  # noqa: S106  # an order's name
            replica_id="", node_id="", offering="",
            ended_at=samples.EPOCH + timedelta(seconds=60), reason="no complete listing came",
        )
    )  # fmt: skip
    with pytest.raises(AmbiguousOutcomeError, match="no complete listing came") as caught:
        list(lifecycle.follow_down(site, fleet, timeout_s=10))
    assert (caught.value.exit_code, "fleetctl gc" in caught.value.hint) == (10, True)
    assert store.fleet(fleet) is None


def test_down_waits_for_the_controller_to_finish(site, controlled, store, host):
    replica = samples.replica(state=ReplicaState.READY)
    store.begin_replica(replica, samples.node_request(), now=samples.EPOCH)
    lifecycle.down(site, "demo")
    seen = []
    for status in lifecycle.follow_down(site, "demo", timeout_s=20):
        seen.append(sum(lane.live for lane in status.lanes))
        if len(seen) == 2:
            store.settle_intent("token-1", IntentState.DONE, replica=replace(replica, state=ReplicaState.GONE))
            del host.controllers["demo"]
    assert seen[:2] == [1, 1]
    assert store.fleet("demo") is None


def test_down_starts_a_controller_again_that_died_before_it_was_done(site, controlled, store, host):
    store.begin_replica(samples.replica(state=ReplicaState.READY), samples.node_request(), now=samples.EPOCH)
    lifecycle.down(site, "demo")
    del host.controllers["demo"]
    with pytest.raises(UnavailableError, match="not down after 5 s"):
        list(lifecycle.follow_down(site, "demo", timeout_s=5))
    assert "demo" in host.controllers


def test_a_fleet_brought_up_again_while_it_goes_is_not_forgotten(site, controlled, store, host):
    lifecycle.down(site, "demo")
    for _ in lifecycle.follow_down(site, "demo", timeout_s=5):
        del host.controllers["demo"]
        store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    assert store.fleet("demo").phase is DesiredPhase.UP
    assert host.calls["clean_up", "demo"] == 0


def test_a_lane_is_not_given_to_another_model_of_a_fleet_that_is_up_but_its_model_may_be_renamed(site):
    profile, plan = samples.profile(), samples.plan()
    short, long = profile.lanes
    models = [replace(profile.model, served_name=name) for name in ("big", "small", "little")]
    lanes = (replace(short, model="small"), replace(long, model="big"))
    up = replace(profile, model=models[0], other_models=(models[1],), lanes=lanes)
    lifecycle.up(site, up, plan)
    moved = replace(up, lanes=(replace(short, model="big"), lanes[1]))
    with pytest.raises(ConfigError, match="lane short serves small and would serve big") as caught:
        lifecycle.up(site, moved, plan)
    assert "call the lane otherwise" in caught.value.hint
    renamed = replace(up, other_models=(models[2],), lanes=(replace(short, model="little"), lanes[1]))
    assert lifecycle.up(site, renamed, plan).change is Change.UPDATED


def test_an_adapter_is_called_otherwise_in_two_steps(site):
    profile, plan = samples.profile(), samples.plan()

    def with_adapters(**adapters: str) -> Profile:
        return replace(profile, model=replace(profile.model, adapters=adapters))

    lifecycle.up(site, with_adapters(legal="/lora/legal", sql="/lora/sql"), plan)
    with pytest.raises(ConfigError, match="adapter legal would be called law") as caught:
        lifecycle.up(site, with_adapters(law="/lora/legal", sql="/lora/sql"), plan)
    assert "keep both" in caught.value.hint
    both = with_adapters(legal="/lora/legal", law="/lora/legal", sql="/lora/sql")
    assert lifecycle.up(site, both, plan).change is Change.UPDATED
    assert lifecycle.up(site, with_adapters(law="/lora/legal"), plan).change is Change.UPDATED

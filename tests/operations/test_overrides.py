from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import BudgetExceededError, ConfigError, DisruptionLimitError, NotFoundError
from fleetctl.model.desired import DesiredPhase, Overrides
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import CapacitySpec, SpotPolicy
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.operations import overrides
from fleetctl.testing import samples

if TYPE_CHECKING:
    from fleetctl.state.sqlite import SqliteStore


def stored(store: SqliteStore) -> Overrides:
    desired = store.fleet("demo")
    assert desired is not None
    return desired.overrides


def test_scale_is_written_journalled_and_the_controller_woken(controlled, site, store, host):
    change = overrides.scale(site, "demo", "short", 4)
    assert (change.before, change.after) == (None, 4)
    assert stored(store).replicas == {"short": 4}
    assert [(e.kind, e.subject.path, e.action) for e in store.journal("demo")] == [("operator", "lane/short", "scale")]
    assert host.calls["wake", "demo"] == 1


def test_scaling_back_to_auto_leaves_other_lanes_alone(controlled, site, store, host):
    overrides.scale(site, "demo", "short", 4)
    overrides.scale(site, "demo", "long", 3)
    overrides.scale(site, "demo", "short", None)
    assert stored(store).replicas == {"long": 3}


def test_scaling_to_what_it_is_changes_nothing(controlled, site, store, host):
    overrides.scale(site, "demo", "short", 4)
    generation = store.fleet("demo").generation
    overrides.scale(site, "demo", "short", 4)
    assert store.fleet("demo").generation == generation


def test_a_dry_run_writes_nothing(controlled, site, store, host):
    before = store.fleet("demo")
    assert overrides.scale(site, "demo", "short", 4, dry_run=True).after == 4
    assert overrides.shed(site, "demo", "short", LadderStep.SHED, dry_run=True).after is LadderStep.SHED
    assert store.fleet("demo") == before
    assert host.calls["wake", "demo"] == 0


@pytest.mark.parametrize("replicas", [0, 9])
def test_a_lane_stays_inside_its_bounds(replicas, site, fleet):
    with pytest.raises(ConfigError, match="takes 1 to 8 replicas"):
        overrides.scale(site, fleet, "short", replicas)


@pytest.mark.parametrize("capacity", [CapacitySpec(max_nodes=5), CapacitySpec(max_cost_usd_per_hour=7.0)])
def test_hard_caps_stop_a_scale_up_and_let_a_scale_down_pass(capacity, controlled, site, store):
    store.put_fleet(samples.profile(capacity=capacity), samples.plan(), now=samples.EPOCH)
    with pytest.raises(BudgetExceededError, match="over the cap"):
        overrides.scale(site, "demo", "short", 4)
    assert overrides.scale(site, "demo", "short", 1).after == 1


def test_a_cap_that_was_lowered_under_a_living_fleet_refuses_no_scale_down_and_every_scale_up(controlled, site, store):
    overrides.scale(site, "demo", "short", 6)
    over = store.fleet("demo").revision
    lowered = samples.profile(capacity=CapacitySpec(max_nodes=4))
    store.put_fleet(lowered, samples.plan(), now=samples.EPOCH, over=over)
    assert overrides.scale(site, "demo", "short", 5).after == 5
    with pytest.raises(BudgetExceededError, match="over the cap of 4"):
        overrides.scale(site, "demo", "long", 3)


def test_money_caps_are_asked_of_any_lane_that_grows_though_not_beyond_its_plan(controlled, site, store):
    capacity = CapacitySpec(max_cost_usd_per_hour=7.5)
    store.put_fleet(samples.profile(capacity=capacity), samples.plan(), now=samples.EPOCH)
    overrides.scale(site, "demo", "long", 1)
    overrides.scale(site, "demo", "short", 4)
    with pytest.raises(BudgetExceededError, match=r"up to \$7.82/h"):
        overrides.scale(site, "demo", "long", 2)


def test_scaling_prices_replicas_as_the_controller_buys_them(controlled, site, store):
    profile = samples.profile(capacity=CapacitySpec(max_cost_usd_per_hour=8.0))
    store.put_fleet(profile, samples.plan(), now=samples.EPOCH)
    assert overrides.scale(site, "demo", "long", 3).after == 3  # all in all 3 on demand, 2 on spot
    without_spot = tuple(replace(lane, spot=SpotPolicy.NONE) for lane in profile.lanes)
    store.put_fleet(replace(profile, lanes=without_spot), samples.plan(), now=samples.EPOCH)
    with pytest.raises(BudgetExceededError, match=r"up to \$9.30/h"):
        overrides.scale(site, "demo", "long", 3)


@pytest.mark.parametrize(("ready", "least"), [(3, 1), (4, 1), (6, 3), (8, 4)])
def test_no_more_than_half_of_a_lane_or_three_goes_at_once_by_hand_unless_forced(ready, least, controlled, site, store):
    for number in range(ready):
        store.put_replica(samples.replica(f"r{number}", state=ReplicaState.READY))
    if least > 1:
        with pytest.raises(DisruptionLimitError, match=f"{ready - least + 1} of {ready} replicas within a minute"):
            overrides.scale(site, "demo", "short", least - 1)
    assert overrides.scale(site, "demo", "short", least).after == least
    assert overrides.scale(site, "demo", "short", 1, force=True).after == 1


def test_small_steps_go_no_faster(controlled, site, store, clock):
    for number in range(8):
        store.put_replica(samples.replica(f"r{number}", state=ReplicaState.READY))
    overrides.scale(site, "demo", "short", 4)
    for number in range(4):  # as the controller does next
        gone = samples.replica(
            f"r{number}",
            state=ReplicaState.DRAINING,
            drain_code=ReasonCode.REPLICA_EXCESS,
            changed_at=clock.now(),
        )
        store.put_replica(gone)
    with pytest.raises(DisruptionLimitError, match="7 of 8 replicas"):
        overrides.scale(site, "demo", "short", 1)
    clock.sleep_blocking(61.0)
    assert overrides.scale(site, "demo", "short", 1).after == 1


def test_shed_pins_a_step_and_lets_go(controlled, site, store, host):
    overrides.shed(site, "demo", "long", LadderStep.PAUSE_BATCH)
    assert stored(store).step == {"long": LadderStep.PAUSE_BATCH}
    assert overrides.shed(site, "demo", "long", None).before is LadderStep.PAUSE_BATCH
    assert stored(store).step == {}


@pytest.mark.parametrize(
    ("interruptible", "step", "message"),
    [
        (False, None, ""),
        (False, LadderStep.CAP_TOKENS, ""),
        (False, LadderStep.SHED, "cannot dispatch at once"),
        (False, LadderStep.BREAKER, "but a probe a second"),
        (True, LadderStep.PAUSE_BATCH, "hold its queue"),
        (True, LadderStep.NORMAL, ""),
    ],
)
def test_what_pinning_a_lane_costs_is_said_before(interruptible, step, message, site, fleet, store):
    profile = samples.profile()
    lanes = tuple(replace(lane, interruptible=interruptible) for lane in profile.lanes)
    store.put_fleet(replace(profile, lanes=lanes), samples.plan(), now=samples.EPOCH)
    found = overrides.consequence(site, fleet, "short", step)
    assert message in found
    assert bool(message) is bool(found)


@pytest.mark.parametrize(
    "call", [lambda s, f: overrides.scale(s, f, "nope", 2), lambda s, f: overrides.shed(s, f, "nope", None)]
)
def test_an_unknown_lane_names_the_known(call, site, fleet):
    with pytest.raises(NotFoundError) as caught:
        call(site, fleet)
    assert caught.value.hint == "lanes: short, long"


def test_a_fleet_going_down_is_not_steered(site, fleet, store):
    store.set_phase(fleet, DesiredPhase.DOWN, now=samples.EPOCH)
    with pytest.raises(ConfigError, match="going down"):
        overrides.scale(site, fleet, "short", 3)

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import BudgetExceededError, ConfigError, NotFoundError
from fleetctl.model.desired import DesiredPhase, Overrides
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import CapacitySpec
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


@pytest.mark.parametrize("capacity", [CapacitySpec(max_nodes=5), CapacitySpec(max_cost_usd_per_hour=8.0)])
def test_hard_caps_stop_a_scale_up_and_let_a_scale_down_pass(capacity, controlled, site, store):
    store.put_fleet(samples.profile(capacity=capacity), samples.plan(), now=samples.EPOCH)
    with pytest.raises(BudgetExceededError, match="over the cap"):
        overrides.scale(site, "demo", "short", 4)
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

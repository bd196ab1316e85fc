from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.cli.main import main
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import BudgetExceededError, ConfigError, NotFoundError
from fleetctl.model.catalogue import Market
from fleetctl.model.desired import Overrides, Phase
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import CapacitySpec
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.operations import steering
from fleetctl.testing import samples

if TYPE_CHECKING:
    from fleetctl.state.sqlite import SqliteStore


def overrides(store: SqliteStore) -> Overrides:
    desired = store.fleet("demo")
    assert desired is not None
    return desired.overrides


def test_scale_is_written_journalled_and_the_controller_woken(controller, store):
    steered = steering.scale("demo", "short", 4)
    assert (steered.before, steered.after) == ("automatic", "4")
    assert overrides(store).replicas == {"short": 4}
    assert [(e.kind, e.subject.path, e.action) for e in store.journal("demo")] == [("operator", "lane/short", "scale")]
    assert controller.wakes == 1


def test_scaling_back_to_auto_leaves_other_lanes_alone(controller, store):
    steering.scale("demo", "short", 4)
    steering.scale("demo", "long", 3)
    steering.scale("demo", "short", None)
    assert overrides(store).replicas == {"long": 3}


def test_scaling_to_what_it_is_changes_nothing(controller, store):
    steering.scale("demo", "short", 4)
    generation = store.fleet("demo").generation
    steering.scale("demo", "short", 4)
    assert store.fleet("demo").generation == generation


def test_a_dry_run_writes_nothing(controller, store):
    before = store.fleet("demo")
    assert steering.scale("demo", "short", 4, dry_run=True).after == "4"
    assert steering.shed("demo", "short", LadderStep.SHED, dry_run=True).after == "shed"
    assert store.fleet("demo") == before
    assert controller.wakes == 0


@pytest.mark.parametrize("replicas", [0, 9])
def test_a_lane_stays_inside_its_bounds(replicas, fleet):
    with pytest.raises(ConfigError, match="takes 1 to 8 replicas"):
        steering.scale(fleet, "short", replicas)


@pytest.mark.parametrize("capacity", [CapacitySpec(max_nodes=5), CapacitySpec(max_cost_usd_per_hour=8.0)])
def test_hard_caps_stop_a_scale_up_and_let_a_scale_down_pass(capacity, controller, store):
    store.put_fleet(samples.profile(capacity=capacity), samples.plan(), now=samples.EPOCH)
    with pytest.raises(BudgetExceededError, match="over the cap"):
        steering.scale("demo", "short", 4)
    assert steering.scale("demo", "short", 1).after == "1"


def test_shed_pins_a_step_and_lets_go(controller, store):
    steering.shed("demo", "long", LadderStep.PAUSE_BATCH)
    assert overrides(store).step == {"long": LadderStep.PAUSE_BATCH}
    assert steering.shed("demo", "long", None).before == "pause-batch"
    assert overrides(store).step == {}


@pytest.mark.parametrize(
    ("interruptible", "step", "said"),
    [
        (False, None, ""),
        (False, LadderStep.CAP_TOKENS, ""),
        (False, LadderStep.SHED, "cannot dispatch at once"),
        (False, LadderStep.BREAKER, "but a probe a second"),
        (True, LadderStep.PAUSE_BATCH, "hold its queue"),
        (True, LadderStep.NORMAL, ""),
    ],
)
def test_what_pinning_a_lane_costs_is_said_before(interruptible, step, said, fleet, store):
    profile = samples.profile()
    lanes = tuple(replace(lane, interruptible=interruptible) for lane in profile.lanes)
    store.put_fleet(replace(profile, lanes=lanes), samples.plan(), now=samples.EPOCH)
    found = steering.consequence(fleet, "short", step)
    assert said in found
    assert bool(said) is bool(found)


@pytest.mark.parametrize("call", [lambda f: steering.scale(f, "nope", 2), lambda f: steering.shed(f, "nope", None)])
def test_an_unknown_lane_names_the_known(call, fleet):
    with pytest.raises(NotFoundError) as caught:
        call(fleet)
    assert caught.value.hint == "lanes: short, long"


def test_a_fleet_going_down_is_not_steered(fleet, store):
    store.set_phase(fleet, Phase.DOWN, now=samples.EPOCH)
    with pytest.raises(ConfigError, match="going down"):
        steering.scale(fleet, "short", 3)


def a_replica(store: SqliteStore, name: str = "short-1", **changes: Any) -> Replica:
    replica = samples.replica(name, **({"state": ReplicaState.READY, "node_id": f"node-{name}"} | changes))
    store.begin_replica(replica, samples.node_request(f"token-{name}", replica_id=name), now=samples.EPOCH)
    return replica


@pytest.mark.parametrize("target", ["short-1", "node-short-1"])
def test_a_replica_is_drained_by_its_name_or_its_nodes(target, controller, store):
    a_replica(store)
    assert steering.drain("demo", target).drain_requested
    assert steering.drain("demo", target).id == "short-1"  # again is no error
    assert [e.action for e in store.journal("demo")] == ["drain"]
    assert controller.wakes == 2


def test_a_replica_that_ended_cannot_be_drained(controller, store):
    a_replica(store, "short-1")
    a_replica(store, "short-2", state=ReplicaState.GONE)
    with pytest.raises(NotFoundError) as caught:
        steering.drain("demo", "short-2")
    assert caught.value.hint == "live: short-1"


def test_following_a_drain_ends_when_the_node_is_gone(controller, store):
    replica = a_replica(store)
    steps = iter((ReplicaState.DRAINING, ReplicaState.STOPPING, ReplicaState.GONE))
    seen = []
    for record in steering.follow_drain("demo", "short-1", timeout_s=20):
        seen.append(record.state)
        if record.state.is_live:
            store.put_replica(replace(replica, state=next(steps), changed_at=SYSTEM_CLOCK.now()))
    assert seen == [ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.STOPPING, ReplicaState.GONE]


def test_only_spot_nodes_are_interrupted(controller, store):
    a_replica(store, "short-1")
    a_replica(store, "long-1", market=Market.SPOT)
    with pytest.raises(ConfigError, match="short-1 is on-demand") as caught:
        steering.interrupt("demo", "short-1", notice_s=30)
    assert "spot replicas: long-1" in caught.value.hint


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("scale", "short=3"), 0, "demo/short: replicas automatic -> 3\n"),
        (
            ("scale", "short", "3", "--dry-run"),
            0,
            "demo/short: replicas automatic -> 3 (dry run, nothing was changed)\n",
        ),
        (("scale", "short", "auto"), 0, "demo/short: replicas automatic, unchanged\n"),
        (("scale", "short"), 3, "is not a number of replicas"),
        (("scale", "short=99"), 3, "takes 1 to 8 replicas"),
        (("shed", "long", "--step", "cap-tokens"), 0, "demo/long: ladder step automatic -> cap-tokens\n"),
        (("shed", "long"), 3, "pass --yes"),
        (("shed", "long", "--yes"), 0, "demo/long: ladder step automatic -> shed\n"),
        (("shed", "long", "--step", "half"), 3, "steps: normal, pause-batch"),
        (("drain", "nobody"), 8, "no live replica or node 'nobody'"),
        (("interrupt", "nobody", "--notice", "soon"), 3, "is not a duration"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_the_command_line_steers(argv, code, said, controller, capsys):
    assert main(argv) == code
    captured = capsys.readouterr()
    assert said in (captured.out if code == 0 else captured.err)

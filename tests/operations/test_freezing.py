from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.errors import ConfigError, FrozenError, NotFoundError
from fleetctl.model.audit import Actor
from fleetctl.model.desired import WHOLE_FLEET
from fleetctl.model.ladder import LadderStep
from fleetctl.operations import freezing, lifecycle, overrides, replicas
from fleetctl.testing import samples


@pytest.fixture
def site(fakes):
    return replace(fakes.site, actor=Actor(user="alice", host="web1"))


@pytest.fixture
def frozen(controlled, site):
    freezing.freeze(site, "demo", reason="launch", until=timedelta(hours=2))
    return site


def test_a_freeze_is_on_record_with_its_terms_and_journalled(frozen, store, clock):
    terms = store.fleet("demo").overrides.freezes[WHOLE_FLEET]
    assert (terms.by, terms.reason, terms.until) == ("alice@web1", "launch", clock.now() + timedelta(hours=2))
    assert store.journal("demo")[-1].action == "freeze"


def up_changed(site, **given):
    profile = samples.profile()
    changed = replace(profile, capacity=replace(profile.capacity, max_nodes=profile.capacity.max_nodes + 1))
    return lifecycle.up(site, changed, samples.plan(), **given)


@pytest.mark.parametrize(
    "change",
    [
        lambda site, **given: overrides.scale(site, "demo", "short", 4, **given),
        lambda site, **given: overrides.shed(site, "demo", "short", LadderStep.SHED, **given),
        lambda site, **given: lifecycle.down(site, "demo", **given),
        up_changed,
    ],
    ids=["scale", "shed", "down", "up"],
)
def test_commands_are_refused_unless_the_freeze_is_overridden(change, frozen):
    with pytest.raises(FrozenError, match="frozen by alice@web1 until"):
        change(frozen)
    change(frozen, override_freeze=True)


def test_an_up_that_changes_nothing_is_not_refused(frozen):
    assert lifecycle.up(frozen, samples.profile(), samples.plan()).change is lifecycle.Change.UNCHANGED


def test_a_replica_of_a_frozen_lane_is_not_drained_and_one_beside_it_is(controlled, site, store):
    store.put_replica(samples.replica("r1", lane="short"))
    store.put_replica(samples.replica("r2", lane="long"))
    freezing.freeze(site, "demo", reason="launch", lane="short")
    with pytest.raises(FrozenError, match="lane short of demo"):
        replicas.drain(site, "demo", "r1")
    assert replicas.drain(site, "demo", "r2").drain_requested


def test_letting_a_lane_go_is_never_held_back(controlled, site):
    overrides.shed(site, "demo", "short", LadderStep.SHED)
    freezing.freeze(site, "demo", reason="launch")
    assert overrides.shed(site, "demo", "short", None).after is None


def test_a_thaw_ends_it(frozen, store):
    freezing.thaw(frozen, "demo")
    assert store.fleet("demo").overrides.freezes == {}
    overrides.scale(frozen, "demo", "short", 4)


def test_it_outlasts_an_up_and_not_a_down(frozen, store, clock):
    lifecycle.up(frozen, samples.profile(), samples.plan(), override_freeze=True)
    assert store.fleet("demo").overrides.freezes
    lifecycle.down(frozen, "demo", override_freeze=True)
    lifecycle.up(frozen, samples.profile(), samples.plan())
    assert not store.fleet("demo").overrides.freezes


def test_an_end_that_has_passed_and_a_lane_that_is_not_there_are_refused(controlled, site, clock):
    with pytest.raises(ConfigError, match="has passed"):
        freezing.freeze(site, "demo", reason="x", until=clock.now())
    with pytest.raises(NotFoundError):
        freezing.freeze(site, "demo", reason="x", lane="none")


@pytest.mark.parametrize("reason", ["", "  ", "ghp_0123456789abcdefghijABCDEFGHIJ012345"])
def test_a_freeze_without_a_reason_or_with_a_secret_as_one_is_refused(controlled, site, store, reason):
    with pytest.raises(ConfigError, match="reason"):
        freezing.freeze(site, "demo", reason=reason)
    assert store.fleet("demo").overrides.freezes == {}

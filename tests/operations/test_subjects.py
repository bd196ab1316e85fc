"""Which thing of a fleet a person means by a word."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.reason import join_messages
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import FLEET, GATEWAY, Subject
from fleetctl.operations import fleets
from fleetctl.operations.subjects import subject_meant
from fleetctl.testing import samples
from tests.reconcile.worlds import decide, desired, lane_spec, observation, observed

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired


def named_oddly() -> Desired:
    """Return a fleet with the lanes `short`, `short-1`, `gateway` and the replica `short-1` of `short`."""
    lanes = tuple(replace(lane_spec(), name=name) for name in ("short", "short-1", "gateway"))
    return desired(*lanes)


@pytest.fixture
def seen(site, store):
    fleet = named_oddly()
    store.put_fleet(fleet.profile, fleet.plan, now=samples.EPOCH)
    replica = samples.replica("short-1", lane="short", state=ReplicaState.READY, node_id="node-7")
    store.begin_replica(replica, samples.node_request(), now=samples.EPOCH)
    return fleets.status(site, "demo")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("short", Subject.lane("short")),
        ("lane/short-1", Subject.lane("short-1")),
        ("replica/short-1", Subject.replica("short-1")),
        ("node-7", Subject.replica("short-1")),
        ("fleet", FLEET),
        ("gateway/gateway", GATEWAY),
        ("lane/gateway", Subject.lane("gateway")),
        ("nothing", None),
        ("lane/nothing", None),
        ("fleet/demo", FLEET),
        ("fleet/xx", None),
        ("gateway/nonsense", None),
    ],
)
def test_a_word_means_one_thing(seen, text, meant):
    assert subject_meant(seen, text) == meant


@pytest.mark.parametrize(
    ("text", "hint"),
    [("short-1", "say lane/short-1 or replica/short-1"), ("gateway", "say gateway/gateway or lane/gateway")],
)
def test_a_word_for_several_things_asks_which(seen, text, hint):
    with pytest.raises(ConfigError, match="means several things") as caught:
        subject_meant(seen, text)
    assert caught.value.hint == hint


def test_an_unknown_name_is_answered_with_each_known_one_once_as_it_can_be_typed(seen, site):
    with pytest.raises(NotFoundError, match="no lane or replica 'nonsense'") as caught:
        fleets.why(site, seen.fleet, "nonsense")
    known = caught.value.hint.removeprefix("known: ").split(", ")
    assert known == ["short", "lane/short-1", "lane/gateway", "replica/short-1", "fleet", "gateway/gateway"]
    assert all(subject_meant(seen, text) is not None for text in known)


def test_a_lane_called_gateway_keeps_its_own_reason():
    fleet = named_oddly()
    replica = observed("r1")
    decision = decide(fleet, replace(observation(replica), gateway=None, gateway_alive=False))
    assert "not running" in join_messages(decision.reasons[GATEWAY])
    assert "by the plan" in join_messages(decision.reasons[Subject.lane("gateway")])

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.errors import ConfigError, NotFoundError, ProviderError
from fleetctl.model.catalogue import Market
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.operations import interrupting, replicas
from fleetctl.operations.interrupting import NodeSelection
from fleetctl.testing import samples

if TYPE_CHECKING:
    from fleetctl.state.sqlite import SqliteStore


def a_replica(store: SqliteStore, name: str = "r1", **changes: Any) -> Replica:
    replica = samples.replica(name, **({"state": ReplicaState.READY, "node_id": f"node-{name}"} | changes))
    store.begin_replica(replica, samples.node_request(f"token-{name}", replica_id=name), now=samples.EPOCH)
    return replica


@pytest.mark.parametrize("target", ["r1", "node-r1"])
def test_a_replica_is_drained_by_its_name_or_its_nodes(target, controlled, site, store, host):
    a_replica(store)
    assert replicas.drain(site, "demo", target).drain_requested
    assert replicas.drain(site, "demo", target).id == "r1"  # again is no error
    assert [e.action for e in store.journal("demo")] == ["drain"]
    assert host.calls["wake", "demo"] == 2


def test_a_replica_that_ended_cannot_be_drained(controlled, site, store, host):
    a_replica(store, "r1")
    a_replica(store, "r2", state=ReplicaState.GONE)
    with pytest.raises(NotFoundError) as caught:
        replicas.drain(site, "demo", "r2")
    assert caught.value.hint == "live: r1"


def test_following_a_drain_ends_when_the_node_is_gone(controlled, site, store, host):
    replica = a_replica(store)
    steps = iter((ReplicaState.DRAINING, ReplicaState.STOPPING, ReplicaState.GONE))
    seen = []
    for record in replicas.follow_drain(site, "demo", "r1", timeout_s=20):
        seen.append(record.state)
        if record.state.is_live:
            store.put_replica(replace(replica, state=next(steps), changed_at=samples.EPOCH))
    assert seen == [ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.STOPPING, ReplicaState.GONE]


def test_only_spot_nodes_are_interrupted(controlled, site, store, host):
    a_replica(store, "r1")
    a_replica(store, "r11", lane="long", market=Market.SPOT)
    with pytest.raises(ConfigError, match="r1 is on-demand") as caught:
        interrupting.interrupt(site, "demo", "r1", notice_s=30)
    assert "spot replicas: r11" in caught.value.hint


def test_a_spot_node_is_given_notice_and_the_controller_is_woken(controlled, site, store, host, fakes):
    request = samples.node_request(market=Market.SPOT)
    (created,) = asyncio.run(fakes.provider.create((request,), resolve_secrets=dict))
    node = created.node
    a_replica(store, "r1", market=Market.SPOT, node_id=node.id)
    interrupting.interrupt(site, "demo", "r1", notice_s=30, dry_run=True)
    assert store.journal("demo") == ()
    assert interrupting.interrupt(site, "demo", node.id, notice_s=30).id == "r1"
    assert [(e.action, e.reason) for e in store.journal("demo")] == [("interrupt", "a drill, with 30s notice")]
    assert [call.subject for call in fakes.provider.calls if call.name == "interrupt"] == [node.id]
    assert host.calls["wake", "demo"] == 1


def test_of_several_nodes_those_that_can_be_are_interrupted_and_the_others_are_named(
    controlled, site, store, host, fakes
):
    request = samples.node_request(market=Market.SPOT)
    (created,) = asyncio.run(fakes.provider.create((request,), resolve_secrets=dict))
    a_replica(store, "r1", market=Market.SPOT, node_id="node-that-has-gone")
    a_replica(store, "r2", market=Market.SPOT, node_id=created.node.id)
    with pytest.raises(ProviderError, match=r"1 of 2 are not interrupted: r1: ") as caught:
        interrupting.interrupt_all(site, "demo", NodeSelection(), notice_s=30)
    assert caught.value.hint == "the others are"
    noticed = asyncio.run(fakes.provider.describe(request.token, owner=request.owner))
    assert noticed.notice is not None
    assert host.calls["wake", "demo"] == 1
    with pytest.raises(ProviderError, match="node-that-has-gone"):
        interrupting.interrupt(site, "demo", "r1", notice_s=30)

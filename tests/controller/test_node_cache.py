"""What the provider has said of nodes, merged by age: an end is final, and no second node of a token is overlooked."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fleetctl.controller.node_cache import NodeCache
from fleetctl.model.catalogue import Market
from fleetctl.model.node import Node, NodeListing, NodeState
from fleetctl.testing.samples import EPOCH, offering


def node() -> Node:
    return Node(
        id="n", token="t", owner="o", fleet="demo", replica_id="r1", state=NodeState.RUNNING, market=Market.ON_DEMAND,  # noqa: S106  # an order's
        host="127.0.0.1", port=1, created_at=EPOCH, offering=offering().key,
    )  # fmt: skip


def at(seconds: float) -> NodeListing:
    return NodeListing(nodes=(), as_of=EPOCH + timedelta(seconds=seconds))


def listed(cache: NodeCache, seconds: float, *nodes: Node) -> tuple[NodeState, ...]:
    cache.put_listing(replace(at(seconds), nodes=nodes))
    return tuple(each.state for each in cache.nodes(now=EPOCH + timedelta(seconds=seconds)))


def test_a_listing_that_lags_brings_no_ended_node_back() -> None:
    cache = NodeCache(lag_s=0.0, stop_again_s=10.0)
    running = node()
    assert listed(cache, 1, running) == (NodeState.RUNNING,)
    assert listed(cache, 2, replace(running, state=NodeState.GONE)) == (NodeState.GONE,)
    assert listed(cache, 3, running) == (NodeState.GONE,)


def test_a_node_that_a_late_order_made_after_the_end_of_the_first_is_seen() -> None:
    cache = NodeCache(lag_s=0.0, stop_again_s=10.0)
    first = node()
    listed(cache, 1, first)
    listed(cache, 2, replace(first, state=NodeState.GONE))
    second = replace(first, created_at=first.created_at + timedelta(seconds=3))
    assert listed(cache, 4, second) == (NodeState.RUNNING,)
    assert listed(cache, 5, replace(second, state=NodeState.GONE)) == (NodeState.GONE,)
    assert listed(cache, 6, second) == (NodeState.GONE,)

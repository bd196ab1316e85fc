"""What every provider keeps, tried on the shipped fake and on the local provider alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ProviderError
from fleetctl.model.catalogue import Market
from fleetctl.model.node import Node, NodeRequest, NodeState
from fleetctl.testing.orders import create, listen_port
from fleetctl.testing.provider import FakeProvider
from fleetctl.testing.samples import node_request
from fleetctl_local.provider import LocalProvider

if TYPE_CHECKING:
    from fleetctl.ports.provider import Provider

Both = FakeProvider | LocalProvider


@pytest.fixture(params=["fake", "local"])
def provider(request: pytest.FixtureRequest, owner: str) -> Both:
    return FakeProvider(SYSTEM_CLOCK) if request.param == "fake" else LocalProvider()


def order(owner: str, token: str, **changes: object) -> NodeRequest:
    return node_request(token, **{"owner": owner, "argv": ("/bin/sleep", "600"), "market": Market.SPOT, **changes})


async def listed(provider: Provider, owner: str, fleet: str = "demo") -> dict[str, Node]:
    return {node.token: node for node in (await provider.list_nodes(owner=owner, fleet=fleet)).nodes}


async def until_gone(provider: Provider, owner: str, token: str) -> Node:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + 20
    while (node := (await listed(provider, owner))[token]).state is not NodeState.GONE:
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s
        await SYSTEM_CLOCK.sleep(0.02)
    return node


async def test_offerings_have_unique_keys_prices_and_name_their_provider(provider: Both) -> None:
    sold = await provider.offerings()
    assert sold
    assert len({offering.key for offering in sold}) == len(sold)
    assert all(o.provider == provider.name and o.price_usd_per_hour > 0 and o.gpu_count >= 1 for o in sold)


async def test_create_is_idempotent_by_token(provider: Both, owner: str) -> None:
    first = await create(provider, order(owner, "t-1"))
    again = await create(provider, order(owner, "t-1"))
    assert again.id == first.id
    assert list(await listed(provider, owner)) == ["t-1"]
    assert (first.owner, first.fleet, first.replica_id, first.host, first.port, first.market) == (
        owner, "demo", "r1", "127.0.0.1", 20001, Market.SPOT,
    )  # fmt: skip


async def test_a_token_cannot_be_used_for_another_replica(provider: Both, owner: str) -> None:
    await create(provider, order(owner, "t-1"))
    with pytest.raises(ProviderError, match="already made r1"):
        await create(provider, order(owner, "t-1", replica_id="r2"))


async def test_listing_is_by_owner_and_fleet(provider: Both, owner: str) -> None:
    await create(provider, order(owner, "t-1"))
    await create(provider, order(owner, "t-2", fleet="other"))
    assert list(await listed(provider, owner)) == ["t-1"]
    assert list(await listed(provider, owner, "other")) == ["t-2"]
    assert await listed(provider, "a stranger") == {}


async def test_a_stopped_node_is_seen_gone_with_its_reason_and_stopping_again_is_no_error(
    provider: Both, owner: str
) -> None:
    node = await create(provider, order(owner, "t-1"))
    await provider.stop(node.id, grace_s=10)
    gone = await until_gone(provider, owner, "t-1")
    assert gone.exit_reason == "stopped"
    await provider.stop(node.id, grace_s=10)
    await provider.stop("nobody", grace_s=10)
    assert (await listed(provider, owner))["t-1"] == gone


async def test_the_token_of_an_ended_node_does_not_start_another(provider: Both, owner: str) -> None:
    node = await create(provider, order(owner, "t-1"))
    await provider.stop(node.id, grace_s=10)
    await until_gone(provider, owner, "t-1")
    assert (await create(provider, order(owner, "t-1"))).state is NodeState.GONE


async def test_a_notice_is_listed_and_then_kept(provider: Both, owner: str) -> None:
    node = await create(provider, order(owner, "t-1"))
    await provider.interrupt(node.id, notice_s=1.0)
    noticed = (await listed(provider, owner))["t-1"]
    assert noticed.notice is not None
    assert noticed.notice.deadline is not None
    assert noticed.state in (NodeState.RUNNING, NodeState.GONE)
    gone = await until_gone(provider, owner, "t-1")
    assert gone.exit_reason == "interrupted"
    assert SYSTEM_CLOCK.now() >= noticed.notice.deadline


async def test_on_demand_nodes_and_unknown_ones_are_not_interrupted(provider: Both, owner: str) -> None:
    node = await create(provider, order(owner, "t-1", market=Market.ON_DEMAND))
    with pytest.raises(ProviderError):
        await provider.interrupt(node.id, notice_s=0)
    with pytest.raises(ProviderError):
        await provider.interrupt("nobody", notice_s=0)


async def test_free_ports_avoid_live_nodes_and_those_named(provider: Both, owner: str) -> None:
    first = await listen_port(provider, avoid=frozenset())
    await create(provider, order(owner, "t-1", port=first))
    second = await listen_port(provider, avoid=frozenset())
    third = await listen_port(provider, avoid=frozenset({second}))
    assert len({first, second, third}) == 3

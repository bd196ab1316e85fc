"""What EC2 tells of by itself reaches the controller as nodes, and only the controller puts off an instance's end."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ProviderError
from fleetctl.model.node import NodeState, NoticeKind
from fleetctl_aws.notices import read_event
from tests.providers.contract.cases import FLEET, Account

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleetctl.model.node import Node
    from tests.aws.provider.conftest import Rented

ORDER = {"offering": "g6.xlarge/us-east-1b/spot", "port": 8000}
_WITHIN_S = 20.0


@pytest.fixture
def account(rented: Rented, request: pytest.FixtureRequest) -> Account:
    return Account(rented.provider(), SYSTEM_CLOCK, f"owner-of-{request.node.name}"[:60], defaults=ORDER)


def watched(account: Account) -> AsyncIterator[Node]:
    events = account.events
    assert events is not None
    return events.watch(owner=account.owner, fleet=FLEET)


async def first(nodes: AsyncIterator[Node], *, of: str, state: NodeState | None = None) -> Node:
    """Return the first event that speaks of a node with a notice, or in a state."""
    async with asyncio.timeout(_WITHIN_S):
        async for node in nodes:
            if node.id == of and (node.notice is not None if state is None else node.state is state):
                return node
    raise AssertionError("the stream has ended")


async def test_a_spot_interruption_is_told_with_its_deadline_and_found_by_a_controller_that_starts_later(
    account: Account, rented: Rented
) -> None:
    node = await account.node("t-1")
    rented.cloud.interrupt(node.id, notice_s=120.0)
    nodes = watched(account)
    seen = await first(nodes, of=node.id)
    assert seen.notice is not None
    assert (seen.notice.kind, seen.notice.is_certain) == (NoticeKind.INTERRUPTION, True)
    assert seen.notice.deadline is not None
    assert seen.notice.takes_node
    async with asyncio.timeout(_WITHIN_S):
        while (found := (await account.listing()).nodes[0]).notice is None:
            pending = asyncio.ensure_future(anext(nodes))
            await asyncio.wait([pending], timeout=0.2)
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
            nodes = watched(account)
    assert found.notice == seen.notice


async def test_a_rebalance_recommendation_is_no_certain_end(account: Account, rented: Rented) -> None:
    node = await account.node("t-1")
    rented.cloud.rebalance(node.id)
    seen = await first(watched(account), of=node.id)
    assert seen.notice is not None
    assert (seen.notice.kind, seen.notice.is_certain, seen.notice.deadline) == (NoticeKind.REBALANCE, False, None)


async def test_an_instance_that_somebody_ends_is_told_at_once(account: Account, rented: Rented) -> None:
    node = await account.node("t-1")
    rented.cloud.boto("ec2").terminate_instances(InstanceIds=[node.id])
    seen = await first(watched(account), of=node.id, state=NodeState.GONE)
    assert seen.exit_reason == "terminated by somebody"


async def test_of_another_fleets_instances_nothing_is_told(account: Account, rented: Rented) -> None:
    mine, other = await account.node("t-1"), await account.node("t-2", fleet="other")
    rented.cloud.rebalance(other.id)
    rented.cloud.rebalance(mine.id)
    async with asyncio.timeout(_WITHIN_S):
        async for node in watched(account):
            assert node.id == mine.id
            if node.notice is not None:
                return


async def test_the_controllers_watch_renews_and_a_listing_does_not(account: Account, rented: Rented) -> None:
    node = await account.node("t-1")
    await account.listing()
    assert expires(rented) == "boot+7200s"
    provider = rented.provider(expiry_s=14400.0)  # by which less than three quarters are left
    events = provider.capabilities.events
    assert events is not None
    rented.cloud.rebalance(node.id)
    await first(events.watch(owner=account.owner, fleet=FLEET), of=node.id)
    assert (datetime.fromisoformat(expires(rented)) - SYSTEM_CLOCK.now()).total_seconds() > 14000


async def test_a_queue_that_is_gone_breaks_the_stream(account: Account) -> None:
    with pytest.raises(ProviderError, match="queue"):
        await anext(watched(account))


async def test_notices_are_read_though_renewals_are_refused(account: Account, rented: Rented) -> None:
    node = await account.node("t-1")
    rented.cloud.rebalance(node.id)
    rented.cloud.fault("error", action="DescribeInstances", code="RequestLimitExceeded", times=3)
    nodes = watched(account)
    assert (await first(nodes, of=node.id)).notice is not None
    with pytest.raises(ProviderError):
        await anext(nodes)


@pytest.mark.parametrize("body", ["", "no JSON", "[]", "{}", '{"detail-type": "x", "time": "now", "detail": {}}'])
def test_a_message_that_is_none_of_eventbridges_says_nothing(body: str) -> None:
    assert read_event(body) is None


def expires(rented: Rented) -> str:
    (instance,) = rented.cloud.instances("running")
    return str(instance["tags"]["fleetctl:expires"])

"""What EC2 tells of by itself reaches the controller as nodes, and only the controller puts off an instance's end."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import CredentialsError, ProviderError
from fleetctl.model.node import NodeState, NoticeKind
from fleetctl_aws.notices import queue_name, read_event
from fleetctl_aws.queue_events import FollowUps
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
    await account.node("t-1")
    await account.listing()
    assert expires(rented) == "boot+7200s"
    provider = rented.provider(expiry_s=14400.0)  # by which less than three quarters are left
    events = provider.capabilities.events
    assert events is not None
    nodes = events.watch(owner=account.owner, fleet=FLEET)
    following = asyncio.ensure_future(anext(nodes))
    async with asyncio.timeout(_WITHIN_S):
        while expires(rented).startswith("boot"):
            await SYSTEM_CLOCK.sleep(0.05)
    following.cancel()
    assert (datetime.fromisoformat(expires(rented)) - SYSTEM_CLOCK.now()).total_seconds() > 14000


async def test_a_queue_that_somebody_deletes_is_made_again_and_tells_of_what_comes_then(
    account: Account, rented: Rented
) -> None:
    node = await account.node("t-1")
    await account.listing()
    sqs, name = rented.cloud.boto("sqs"), queue_name(account.owner, FLEET)
    sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"])
    rented.cloud.boto("events").disable_rule(Name=name)
    nodes = watched(account)
    seen = asyncio.ensure_future(first(nodes, of=node.id))
    async with asyncio.timeout(_WITHIN_S):
        while not [each for each in rented.cloud.calls("PutTargets") if each["parameters"].get("Rule") == name][1:]:
            await SYSTEM_CLOCK.sleep(0.05)
        rented.cloud.interrupt(node.id, metadata=False)
        assert (await seen).notice is not None


async def test_instances_are_renewed_though_their_queue_is_gone_and_cannot_be_made(
    account: Account, rented: Rented
) -> None:
    await account.node("t-1")
    await account.listing()
    sqs = rented.cloud.boto("sqs")
    sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=queue_name(account.owner, FLEET))["QueueUrl"])
    rented.cloud.fault("error", action="CreateQueue", code="AWS.SimpleQueueService.QueueDeletedRecently", times=None)
    rented.cloud.fault("delay", action="DescribeInstances", seconds=1.0, times=None)
    provider = rented.provider(expiry_s=14400.0)  # by which less than three quarters are left
    events = provider.capabilities.events
    assert events is not None
    await provider.list_nodes(owner=account.owner, fleet=FLEET)
    async with asyncio.timeout(_WITHIN_S):
        with pytest.raises(ProviderError, match="QueueDeletedRecently"):
            await anext(events.watch(owner=account.owner, fleet=FLEET))
    assert (datetime.fromisoformat(expires(rented)) - SYSTEM_CLOCK.now()).total_seconds() > 14000


async def test_a_stream_that_is_opened_before_the_queue_is_made_holds_until_it_is(
    account: Account, rented: Rented
) -> None:
    nodes = watched(account)
    seen = asyncio.ensure_future(anext(nodes))
    await asyncio.wait([seen], timeout=0.5)
    assert not seen.done()
    node = await account.node("t-1")
    rented.cloud.rebalance(node.id)
    async with asyncio.timeout(_WITHIN_S):
        while (await seen).notice is None:
            seen = asyncio.ensure_future(anext(nodes))


async def test_a_notice_is_told_before_what_came_with_it_and_waits_for_no_other_call(
    account: Account, rented: Rented
) -> None:
    node, other = await account.node("t-1"), await account.node("t-2")
    await account.listing()
    rented.cloud.boto("ec2").terminate_instances(InstanceIds=[other.id])
    rented.cloud.interrupt(node.id)
    rented.cloud.fault("delay", action="DescribeInstances", seconds=3.0, times=None)
    rented.cloud.fault("delay", action="CreateTags", seconds=3.0, times=None)
    nodes = watched(account)
    async with asyncio.timeout(2.0):
        seen = await anext(nodes)
    assert (seen.id, seen.notice is not None and seen.notice.is_certain) == (node.id, True)


async def test_notices_are_read_though_renewals_are_refused(account: Account, rented: Rented) -> None:
    node = await account.node("t-1")
    await account.listing()
    rented.cloud.rebalance(node.id)
    rented.cloud.fault("error", action="DescribeInstances", code="RequestLimitExceeded", times=None)
    nodes = watched(account)
    assert (await first(nodes, of=node.id)).notice is not None
    with pytest.raises(ProviderError):
        async with asyncio.timeout(_WITHIN_S):
            await anext(nodes)


async def test_that_a_notice_cannot_be_kept_for_lack_of_a_right_is_said(account: Account, rented: Rented) -> None:
    node = await account.node("t-1")
    await account.listing()
    rented.cloud.interrupt(node.id)
    rented.cloud.fault("error", action="CreateTags", code="UnauthorizedOperation", times=None, status=403)
    nodes = watched(account)
    assert (await first(nodes, of=node.id)).notice is not None
    async with asyncio.timeout(_WITHIN_S):
        with pytest.raises(CredentialsError, match="create_tags"):
            await first(nodes, of="another")


@pytest.mark.parametrize("seed", range(12))
async def test_what_follows_notices_of_two_sources_is_bounded_and_ends_with_them(seed: int) -> None:
    chance, follow_ups = random.Random(seed), FollowUps()
    running = most = 0

    async def call() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            for _ in range(chance.randrange(1, 12)):
                await SYSTEM_CLOCK.sleep(0.0)
        finally:
            running -= 1

    async def source() -> None:
        for _ in range(40):
            await follow_ups.begin(call())
            for _ in range(chance.randrange(2)):
                await SYSTEM_CLOCK.sleep(0.0)

    await asyncio.gather(source(), source())
    await follow_ups.close()
    assert running == 0, "none goes on"
    assert 10 <= most <= 12  # each source begins one, and waits then


@pytest.mark.parametrize("body", ["", "no JSON", "[]", "{}", '{"detail-type": "x", "time": "now", "detail": {}}'])
def test_a_message_that_is_none_of_eventbridges_says_nothing(body: str) -> None:
    assert read_event(body) is None


def expires(rented: Rented) -> str:
    (instance,) = rented.cloud.instances("running")
    return str(instance["tags"]["fleetctl:expires"])

"""Replicas on one instance: each is found by its own order, pays its part, and the instance goes with the last."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import AmbiguousOutcomeError, ProviderError
from fleetctl.model.node import NodeState
from tests.providers.contract.cases import Account

if TYPE_CHECKING:
    from fleetctl.model.node import Node
    from tests.aws.provider.conftest import Rented

ORDER = {"offering": "g6.12xlarge/us-east-1a/spot", "port": 8000, "gpu_indices": (0, 1)}
LIVING = ("pending", "running")


@pytest.fixture
def account(rented: Rented, request: pytest.FixtureRequest) -> Account:
    return Account(rented.provider(), SYSTEM_CLOCK, f"owner-{zlib.crc32(request.node.nodeid.encode())}", defaults=ORDER)


async def two_on_one(account: Account) -> tuple[Node, Node]:
    first = await account.node("t-1")
    second = await account.node("t-2", replica_id="r2", machine_id=first.machine_id, gpu_indices=(2, 3))
    return first, second


async def by_token(account: Account) -> dict[str, Node]:
    return {node.token: node for node in (await account.listing()).nodes}


async def test_the_second_is_placed_beside_the_first_with_gpus_and_a_port_of_its_own(
    account: Account, rented: Rented
) -> None:
    first, second = await two_on_one(account)
    assert len(rented.cloud.instances()) == 1
    assert second.machine_id == first.machine_id
    assert second.id != first.id
    nodes = await by_token(account)
    assert {token: (node.gpu_indices, node.port) for token, node in nodes.items()} == {
        "t-1": ((0, 1), 8000),
        "t-2": ((2, 3), 8001),
    }
    assert [node.machine_part for node in nodes.values()] == [0.5, 0.5]
    found = await account.describe("t-2")
    assert found is not None
    assert found.replica_id == "r2"


async def test_an_order_without_an_answer_is_placed_once(account: Account, rented: Rented) -> None:
    first = await account.node("t-1")
    beside = {"replica_id": "r2", "machine_id": first.machine_id, "gpu_indices": (2, 3)}
    rented.cloud.fault("cut-after", action="CreateTags")
    (result,) = await account.provider.create((account.order("t-2", **beside),), resolve_secrets=dict)
    assert isinstance(result.error, AmbiguousOutcomeError)
    again = await account.node("t-2", **beside)
    assert again.gpu_indices == (2, 3)
    assert sorted(await by_token(account)) == ["t-1", "t-2"]


async def test_one_that_leaves_ends_alone_and_the_last_takes_the_instance_along(
    account: Account, rented: Rented
) -> None:
    first, second = await two_on_one(account)
    await account.stop(first.id)
    assert len(rented.cloud.instances(*LIVING)) == 1
    assert {token: node.state for token, node in (await by_token(account)).items()} == {
        "t-1": NodeState.STOPPING,
        "t-2": NodeState.RUNNING,
    }
    await account.stop(first.id)  # told again, it is no other's end
    assert len(rented.cloud.instances(*LIVING)) == 1
    await account.stop(second.id)
    assert rented.cloud.instances(*LIVING) == []
    assert (await account.until_gone("t-1")).exit_reason == (await account.until_gone("t-2")).exit_reason == "stopped"


async def test_two_that_are_told_to_go_at_the_same_instant_leave_no_instance(account: Account, rented: Rented) -> None:
    first, second = await two_on_one(account)
    await asyncio.gather(*(account.provider.stop(each.id, grace_s=1.0) for each in (first, second)))
    assert rented.cloud.instances(*LIVING) == []


async def test_two_that_are_told_to_go_at_once_leave_no_instance_though_listings_lag(
    account: Account, rented: Rented
) -> None:
    first, second = await two_on_one(account)
    await account.listing()
    rented.cloud.behave(lag_s=30.0)
    await account.provider.stop(first.id, grace_s=1.0)
    await account.provider.stop(second.id, grace_s=1.0)
    assert rented.cloud.instances(*LIVING) == []


async def test_a_termination_that_was_lost_is_made_up_for_by_the_next_stop(account: Account, rented: Rented) -> None:
    first, second = await two_on_one(account)
    await account.stop(first.id)
    rented.cloud.fault("cut-before", action="TerminateInstances")
    with pytest.raises(AmbiguousOutcomeError):
        await account.provider.stop(second.id, grace_s=1.0)
    # Another process, which knows nothing but the tags.
    later = rented.provider()
    listed = (await later.list_nodes(owner=account.owner, fleet="demo")).nodes
    assert {node.state for node in listed} == {NodeState.STOPPING}
    await later.stop(second.id, grace_s=1.0)
    assert rented.cloud.instances(*LIVING) == []


async def test_gpus_that_somebody_has_are_nobody_elses(account: Account) -> None:
    first, _ = await two_on_one(account)
    order = account.order("t-3", replica_id="r3", machine_id=first.machine_id, gpu_indices=(2, 3))
    (result,) = await account.provider.create((order,), resolve_secrets=dict)
    assert isinstance(result.error, ProviderError)
    assert "not free" in result.error.message


async def test_another_launch_does_not_come_to_an_instance_that_runs_something_else(account: Account) -> None:
    first = await account.node("t-1")
    order = account.order(
        "t-2", replica_id="r2", machine_id=first.machine_id, gpu_indices=(2, 3), argv=("/bin/sleep", "1")
    )
    (result,) = await account.provider.create((order,), resolve_secrets=dict)
    assert isinstance(result.error, ProviderError)
    assert "something else" in result.error.message


async def test_an_interruption_is_said_of_everybody_on_the_instance(account: Account, rented: Rented) -> None:
    first, _ = await two_on_one(account)
    events = account.provider.capabilities.events
    assert events is not None
    seen: set[str] = set()
    rented.cloud.interrupt(first.machine_id, notice_s=60.0)
    async with asyncio.timeout(60):
        async for node in events.watch(owner=account.owner, fleet="demo"):
            if node.notice is not None and node.notice.is_certain:
                seen.add(node.token)
            if seen == {"t-1", "t-2"}:
                break

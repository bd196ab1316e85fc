"""What every provider keeps about machines: replicas that span several, and several on one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import ProviderError
from fleetctl.model.node import NodeState
from tests.providers.contract.cases import CASES, Account, MachineFaults

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fleetctl.model.node import Node

    Scenario = Callable[[Account], Coroutine[object, object, None]]
    Held = Callable[[Scenario], None]

GROUP = {"node_count": 3, "gpu_count": 1, "member_argv": ("/bin/sleep", "600")}


@pytest.fixture(params=sorted(CASES))
def held(request: pytest.FixtureRequest, owner: str) -> Held:
    """Run a scenario on one provider after the other."""
    return lambda scenario: CASES[request.param].run(scenario, owner)


async def group(account: Account, token: str = "t-1", **changes: object) -> Node:  # noqa: S107  # an intent's id
    """Return a replica over three machines, or skip."""
    if not account.provider.capabilities.node_groups:
        pytest.skip("it gives no groups")
    return await account.node(token, **{**GROUP, **changes})


def all_machines(account: Account) -> MachineFaults:
    """Return what there is to know of its machines, or skip."""
    if account.machines is None:
        pytest.skip("its machines cannot be counted or ended from here")
    return account.machines


def machine_ids(*nodes: Node) -> list[str]:
    return [machine for node in nodes for machine in (node.machine_id, *node.members)]


def test_a_group_is_refused_by_whom_it_is_not_declared(held: Held) -> None:
    async def scenario(account: Account) -> None:
        if account.provider.capabilities.node_groups:
            pytest.skip("it gives groups")
        (result,) = await account.create(account.order("t-1", **GROUP))
        assert isinstance(result.error, ProviderError)
        assert await account.tokens() == []

    held(scenario)


def test_a_group_is_made_once_by_its_token(held: Held) -> None:
    async def scenario(account: Account) -> None:
        first = await group(account)
        again = await group(account)
        assert (again.id, again.members) == (first.id, first.members)
        assert len(first.members) == len({*first.members}) == 2
        assert first.id not in first.members
        assert len(all_machines(account).machines()) == 3

    held(scenario)


def test_a_group_is_listed_and_described_under_its_leader(held: Held) -> None:
    async def scenario(account: Account) -> None:
        made = await group(account)
        await account.until_addressed("t-1")
        (listed,) = (await account.listing()).nodes
        described = await account.describe("t-1")
        assert described is not None
        assert (listed.id, listed.members) == (described.id, described.members) == (made.id, made.members)

    held(scenario)


def test_stopping_a_group_ends_every_member(held: Held) -> None:
    async def scenario(account: Account) -> None:
        made = await group(account)
        other = await group(account, "t-2", replica_id="r2")
        machines = all_machines(account)
        await account.until_addressed("t-2")
        await account.stop(made.id)
        gone = await account.until_gone("t-1")
        assert gone.exit_reason == "stopped"
        assert machines.machines() == {*machine_ids(other)}

    held(scenario)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_group_ends_with_the_first_of_its_machines_and_leaves_none_behind(held: Held, index: int) -> None:
    async def scenario(account: Account) -> None:
        made = await group(account)
        machines = all_machines(account)
        await account.until_addressed("t-1")
        ended = machine_ids(made)[index]
        machines.end_machine(ended)
        gone = await account.until_gone("t-1")
        assert gone.exit_reason
        assert (ended in gone.exit_reason) == (index > 0)  # which member it was
        assert machines.machines() == set()
        assert [node.state for node in (await account.listing()).nodes] == [NodeState.GONE]

    held(scenario)


def test_a_group_shares_its_machines_with_nobody(held: Held) -> None:
    async def scenario(account: Account) -> None:
        nodes = [await group(account), await group(account, "t-2", replica_id="r2")]
        nodes.append(await account.node("t-3", replica_id="r3", gpu_count=1))
        assert len({*machine_ids(*nodes)}) == 3 + 3 + 1

    held(scenario)


def test_gpus_pinned_to_replicas_never_overlap(held: Held) -> None:
    async def scenario(account: Account) -> None:
        wanted = (1, 2, 1, 1, 2, 1)
        orders = [
            account.order(f"t-{n}", replica_id=f"r{n}", gpu_count=count) for n, count in enumerate(wanted, start=1)
        ]
        made = [node for order in orders for result in await account.create(order) if (node := result.node)]
        pinned = [(node.machine_id, gpu) for node in made for gpu in node.gpu_indices]
        if not pinned:
            pytest.skip("it pins no GPUs")
        assert len(pinned) == len({*pinned})
        gpu_counts = {order.token: order.gpu_count for order in orders}
        assert all(len(node.gpu_indices) == gpu_counts[node.token] for node in made)

    held(scenario)


def test_gpus_of_an_ended_replica_are_given_again_and_those_of_a_living_one_never(held: Held) -> None:
    async def scenario(account: Account) -> None:
        (first, *others) = [await account.node(f"t-{n}", replica_id=f"r{n}", gpu_count=1) for n in (1, 2, 3, 4)]
        if not first.gpu_indices:
            pytest.skip("it pins no GPUs")
        await account.stop(first.id)
        await account.until_gone("t-1")
        again = await account.node("t-5", replica_id="r5", gpu_count=1)
        assert (again.machine_id, *again.gpu_indices) not in {(node.machine_id, *node.gpu_indices) for node in others}
        if first.machine_id == others[0].machine_id:
            assert (again.machine_id, again.gpu_indices) == (first.machine_id, first.gpu_indices)

    held(scenario)


def test_a_machines_end_is_the_end_of_every_replica_on_it(held: Held) -> None:
    async def scenario(account: Account) -> None:
        machines = all_machines(account)
        nodes = [await account.node(f"t-{n}", replica_id=f"r{n}", gpu_count=2) for n in (1, 2, 3)]
        assert nodes[0].machine_id == nodes[1].machine_id != nodes[2].machine_id
        for n in (1, 2, 3):
            await account.until_addressed(f"t-{n}")
        machines.end_machine(nodes[0].machine_id)
        for token in ("t-1", "t-2"):
            assert (await account.until_gone(token)).exit_reason
        survivor = await account.describe("t-3")
        assert survivor is not None
        assert survivor.state is not NodeState.GONE

    held(scenario)


def test_a_notice_on_a_machine_is_shown_on_every_replica_of_it(held: Held) -> None:
    async def scenario(account: Account) -> None:
        all_machines(account)  # whose nodes are no more than processes of it takes them one by one
        interruptions = account.interruptions
        if interruptions is None:
            pytest.skip("it interrupts nothing on request")
        nodes = [await account.node(f"t-{n}", replica_id=f"r{n}", gpu_count=2) for n in (1, 2, 3)]
        for n in (1, 2, 3):
            await account.until_addressed(f"t-{n}")
        await account._patiently(lambda: interruptions.interrupt(nodes[0].id, notice_s=30.0))
        seen = [await account.describe(f"t-{n}") for n in (1, 2, 3)]
        assert [node is not None and node.notice is not None for node in seen] == [True, True, False]
        for token in ("t-1", "t-2"):
            assert (await account.until_gone(token)).exit_reason == "interrupted"

    held(scenario)

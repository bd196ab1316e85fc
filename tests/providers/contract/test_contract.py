"""What every provider keeps: see `cases.py` for whom, and how to add one."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ProviderError
from fleetctl.model.catalogue import Market
from fleetctl.model.node import NodeState, NoticeKind
from fleetctl.model.preflight import PlannedNodes, Verdict
from tests.providers.contract.cases import CASES, Account

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Scenario = Callable[[Account], Coroutine[object, object, None]]
    Held = Callable[[Scenario], None]


@pytest.fixture(params=sorted(CASES))
def held(request: pytest.FixtureRequest, owner: str) -> Held:
    """Run a scenario on one provider after the other."""
    return lambda scenario: CASES[request.param].run(scenario, owner)


def test_offerings_have_unique_keys_and_prices(held: Held) -> None:
    async def scenario(account: Account) -> None:
        sold = await account._patiently(account.provider.offerings)
        assert sold
        assert len({offering.key for offering in sold}) == len(sold)
        # What a machine has itself, GPUs or the CPU alone, is sold by nobody, and a provider may know nothing of its price.
        assert all(
            o.price_usd_per_hour > 0 or (o.price_usd_per_hour == 0 and (o.pool_gpus is not None or o.is_on_cpu))
            for o in sold
        )
        assert all(o.gpu_count >= 1 for o in sold)

    held(scenario)


def test_its_pace_and_deadlines_are_finite_and_its_batches_not_empty(held: Held) -> None:
    async def scenario(account: Account) -> None:
        pace, capabilities = account.provider.pace, account.provider.capabilities
        assert 0 < pace.list_interval_s < pace.listing_age_s_max(pace.list_latency_s) < 3600
        assert pace.list_latency_s <= pace.list_deadline_s
        assert min(pace.describe_deadline_s, pace.create_deadline_s, pace.stop_deadline_s) > 0
        assert capabilities.batch_max >= 1

    held(scenario)


def test_create_is_idempotent_by_token(held: Held) -> None:
    async def scenario(account: Account) -> None:
        first = await account.node("t-1")
        again = await account.node("t-1")
        assert again.id == first.id
        assert await account.tokens() == ["t-1"]
        assert (first.owner, first.fleet, first.replica_id, first.market) == (
            account.owner, "demo", "r1", Market.SPOT,
        )  # fmt: skip

    held(scenario)


def test_a_node_says_where_its_engine_is_reached(held: Held) -> None:
    async def scenario(account: Account) -> None:
        (address,) = await account._patiently(lambda: account.provider.listen_addresses(1, avoid=frozenset()))
        await account.node("t-1", port=address.port)
        node = await account.until_addressed("t-1")
        assert node.host not in ("", "0.0.0.0")  # noqa: S104  # where to listen is not where it is reached
        assert node.port == address.port

    held(scenario)


def test_an_address_that_was_said_once_is_said_ever_after(held: Held) -> None:
    async def scenario(account: Account) -> None:
        await account.node("t-1")
        addressed = await account.until_addressed("t-1")
        (listed,) = (await account.listing()).nodes
        again = await account.node("t-1")
        assert (listed.host, listed.port) == (again.host, again.port) == (addressed.host, addressed.port)

    held(scenario)


def test_each_order_of_a_batch_has_its_own_result(held: Held) -> None:
    async def scenario(account: Account) -> None:
        await account.node("t-1")
        orders = [account.order(f"t-{n}", replica_id=f"short-{n}") for n in range(2, 5)]
        stolen = account.order("t-1", replica_id="r9")
        batch = [orders[0], stolen, *orders[1:]][: max(2, account.provider.capabilities.batch_max)]
        results = await account.create(*batch)
        assert [result.token for result in results] == [request.token for request in batch]
        assert isinstance(results[1].error, ProviderError)
        assert all(result.node is not None for i, result in enumerate(results) if i != 1)

    held(scenario)


def test_a_token_cannot_be_used_for_another_replica(held: Held) -> None:
    async def scenario(account: Account) -> None:
        await account.node("t-1")
        (result,) = await account.create(account.order("t-1", replica_id="r2"))
        assert isinstance(result.error, ProviderError)
        assert result.node is None

    held(scenario)


def test_listing_is_by_owner_and_fleet(held: Held) -> None:
    async def scenario(account: Account) -> None:
        await account.node("t-1")
        await account.node("t-2", fleet="other")
        assert await account.tokens() == ["t-1"]
        assert await account.tokens("other") == ["t-2"]
        assert await account.tokens(owner="a-stranger") == []

    held(scenario)


def test_a_listing_says_as_of_when_it_is(held: Held) -> None:
    async def scenario(account: Account) -> None:
        before = account.clock.now()
        first = await account.listing()
        second = await account.listing()
        assert before <= first.as_of <= second.as_of <= account.clock.now()

    held(scenario)


def test_a_node_is_described_before_any_listing_shows_it(held: Held) -> None:
    async def scenario(account: Account) -> None:
        made = await account.node("t-1")
        described = await account.describe("t-1")
        assert described is not None
        assert described.id == made.id
        assert await account.describe("t-2") is None

    held(scenario)


def test_a_stranger_is_told_of_no_node(held: Held) -> None:
    async def scenario(account: Account) -> None:
        await account.node("t-1")
        call = account.provider.describe
        assert await account._patiently(lambda: call("t-1", owner="a-stranger")) is None

    held(scenario)


def test_a_stopped_node_ends_for_good_and_stopping_again_is_no_error(held: Held) -> None:
    async def scenario(account: Account) -> None:
        node = await account.node("t-1")
        await account.stop(node.id)
        gone = await account.until_gone("t-1")
        assert gone.exit_reason == "stopped"
        await account.stop(node.id)
        await account.stop("nobody")
        (listed,) = (await account.listing()).nodes
        assert (listed.id, listed.state) == (node.id, NodeState.GONE)

    held(scenario)


def test_the_token_of_an_ended_node_does_not_start_another(held: Held) -> None:
    async def scenario(account: Account) -> None:
        node = await account.node("t-1")
        await account.stop(node.id)
        await account.until_gone("t-1")
        assert (await account.node("t-1")).state is NodeState.GONE

    held(scenario)


def test_a_notice_is_shown_and_then_kept(held: Held) -> None:
    async def scenario(account: Account) -> None:
        interruptions = account.interruptions
        if interruptions is None:
            pytest.skip("it interrupts nothing on request")
        await account.node("t-1")
        node = await account.until_addressed("t-1")
        await interruptions.interrupt(node.id, notice_s=1.0)
        noticed = await account.describe("t-1")
        assert noticed is not None
        assert noticed.notice is not None
        assert noticed.notice.kind is NoticeKind.INTERRUPTION
        assert noticed.notice.deadline is not None
        gone = await account.until_gone("t-1")
        assert gone.exit_reason == "interrupted"
        assert account.clock.now() >= noticed.notice.deadline

    held(scenario)


def test_on_demand_nodes_and_unknown_ones_are_not_interrupted(held: Held) -> None:
    async def scenario(account: Account) -> None:
        interruptions = account.interruptions
        if interruptions is None:
            pytest.skip("it interrupts nothing on request")
        node = await account.node("t-1", market=Market.ON_DEMAND)
        for node_id in (node.id, "nobody"):
            with pytest.raises(ProviderError):
                await interruptions.interrupt(node_id, notice_s=0)

    held(scenario)


def test_events_tell_of_a_notice_within_a_second(held: Held) -> None:
    async def scenario(account: Account) -> None:
        events, interruptions = account.events, account.interruptions
        if events is None or interruptions is None:
            pytest.skip("it tells of nothing by itself")
        await account.node("t-1")
        node = await account.until_addressed("t-1")

        async def noticed() -> None:
            async for seen in events.watch(owner=account.owner, fleet="demo"):
                if seen.notice is not None:
                    return

        watching = asyncio.ensure_future(noticed())
        await account.clock.sleep(0.5)
        await interruptions.interrupt(node.id, notice_s=120)
        async with asyncio.timeout(1.0):
            await watching

    held(scenario)


def test_listen_addresses_avoid_each_other_unless_every_node_has_its_own(held: Held) -> None:
    async def scenario(account: Account) -> None:
        call = account.provider.listen_addresses
        found = await account._patiently(lambda: call(3, avoid=frozenset()))
        assert len(found) == 3
        ports = {address.port for address in found}
        if len(ports) > 1:  # one machine: distinct, and those named are left alone
            assert len(ports) == 3
            more = await account._patiently(lambda: call(1, avoid=frozenset(ports)))
            assert more[0].port not in ports

    held(scenario)


def test_what_nodes_share_is_named_for_one_fleet_and_always_alike(held: Held) -> None:
    async def scenario(account: Account) -> None:
        needed = account.needed()
        assert account.needed() == needed
        assert all((r.owner, r.fleet) == (account.owner, "demo") and r.kind for r in needed)
        everyones = [*needed, *account.needed("other"), *account.needed(owner="a-stranger")]
        assert len({resource.token for resource in everyones}) == 3 * len(needed)

    held(scenario)


def test_shared_resources_are_prepared_and_torn_down_however_often_it_is_asked(held: Held) -> None:
    async def scenario(account: Account) -> None:
        if not account.needed():
            pytest.skip("its nodes share nothing")
        await account.teardown()  # there is nothing yet
        await account.prepare()
        await account.prepare()
        node = await account.node("t-1")
        await account.stop(node.id)
        await account.until_gone("t-1")
        await account.teardown()
        await account.teardown()
        await account.node("t-2", replica_id="r2")  # prepared again by the same tokens

    held(scenario)


def test_the_local_provider_needs_nothing_shared() -> None:
    assert CASES["local"].make(SYSTEM_CLOCK).capabilities.shared is None


def test_a_preflight_names_each_thing_once_says_what_to_do_and_orders_nothing(held: Held) -> None:
    async def scenario(account: Account) -> None:
        look = account.provider.capabilities.preflight
        if look is None:
            pytest.skip("it looks at nothing beforehand")
        sold = await account._patiently(account.provider.offerings)
        for nodes in ((), tuple(PlannedNodes(offering=each, count=1, to_create=1) for each in sold[:2])):
            findings = await account._patiently(partial(look.findings, nodes))
            assert len({finding.name for finding in findings}) == len(findings)
            assert all(finding.name and finding.detail for finding in findings)
            assert all(finding.hint for finding in findings if finding.verdict is not Verdict.OK)
        assert await account.tokens() == []

    held(scenario)

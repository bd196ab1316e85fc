"""What outlived its fleet: found by two readings, removed under a tombstone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pytest

from fleetctl.cli.main import main
from fleetctl.errors import CredentialsError, ProviderError
from fleetctl.model.shared import SharedResource
from fleetctl.operations.doctor import diagnose
from fleetctl.operations.garbage import Orphaned, find_orphaned, remove_orphaned
from fleetctl.ports.store import Tombstone
from fleetctl.testing import samples
from fleetctl.testing.orders import as_it_is
from fleetctl.testing.provider import FakeProvider, Fault

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from fleetctl.model.node import NodeListing
    from tests.sites import FakeSite

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _shared(fakes: FakeSite) -> None:
    fakes.provider = FakeProvider(fakes.clock, shared=("network",))


def run(fakes: FakeSite, work: Coroutine[object, object, T]) -> T:
    """Run on the manual clock, which is moved on until the work is done."""

    async def whole() -> T:
        task = asyncio.ensure_future(work)
        while not task.done():
            await fakes.clock.advance(0.5)
        return await task

    return asyncio.run(whole())


def leave_node(fakes: FakeSite, token: str = "t1", fleet: str = "lost") -> str:  # noqa: S107  # an order's name
    """Leave a living node of a fleet that once was."""
    fakes.store.next_replica_number(fleet)
    order = samples.node_request(token, owner=fakes.store.owner, fleet=fleet)
    (made,) = asyncio.run(fakes.provider.create((order,), resolve_secrets=as_it_is))
    assert made.node is not None
    return made.node.id


def bury(fakes: FakeSite, token: str = "t9", shared: SharedResource | None = None) -> Tombstone:  # noqa: S107
    stone = Tombstone(
        token=token, provider="fake", fleet="lost", replica_id="r1", node_id="", offering="", ended_at=samples.EPOCH,
        reason="could not be torn down", shared=shared,
    )  # fmt: skip
    fakes.store.bury(stone)
    return stone


def network(fakes: FakeSite) -> SharedResource:
    return SharedResource(token="net-1", owner=fakes.store.owner, fleet="lost", kind="network")  # noqa: S106


def test_a_living_node_of_a_fleet_that_is_gone_is_found_and_removed(site, fakes, store):
    node_id = leave_node(fakes)
    found = run(fakes, find_orphaned(site))
    assert [(each.kind, each.id, each.fleet, each.owner) for each in found.resources] == [
        ("node", node_id, "lost", store.owner)
    ]
    assert fakes.provider.live_tokens == ["t1"]  # looking changes nothing
    (removal,) = run(fakes, remove_orphaned(site, found, timeout_s=60))
    assert (removal.fault, fakes.provider.live_tokens, store.tombstones()) == ("", [], ())
    assert [entry.action for entry in store.journal("lost")] == ["gc"]
    assert run(fakes, find_orphaned(site)).resources == ()


def test_a_node_that_only_one_reading_shows_is_none(site, fakes):
    leave_node(fakes)
    fakes.provider.script("list_nodes", Fault(), Fault(delay_s=1.0))
    fakes.provider.stop_s = 0.0

    async def ends_between() -> Orphaned:
        task = asyncio.ensure_future(find_orphaned(site))
        await fakes.clock.advance(0.1)
        fakes.provider.end("t1")
        return await task

    assert run(fakes, ends_between()).resources == ()


def test_nodes_of_fleets_on_record_are_left_to_them(site, fakes, fleet):
    leave_node(fakes, fleet=fleet)
    assert run(fakes, find_orphaned(site)).resources == ()


def test_a_fleet_that_came_back_meanwhile_keeps_its_node(site, fakes, store):
    leave_node(fakes, fleet="demo")
    found = run(fakes, find_orphaned(site))
    store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    (removal,) = run(fakes, remove_orphaned(site, found, timeout_s=60))
    assert "there again" in removal.fault
    assert fakes.provider.live_tokens == ["t1"]


def test_a_shared_resource_is_torn_down_and_its_tombstone_taken_away(site, fakes, store):
    bury(fakes, "net-1", network(fakes))
    found = run(fakes, find_orphaned(site))
    assert [(each.kind, each.id) for each in found.resources] == [("network", "net-1")]
    (removal,) = run(fakes, remove_orphaned(site, found, timeout_s=60))
    assert (removal.fault, store.tombstones()) == ("", ())


def test_what_cannot_be_removed_keeps_its_tombstone(site, fakes, store):
    stone = bury(fakes, "net-1", network(fakes))
    fakes.provider.script("teardown", Fault(error=ProviderError("still in use")))
    found = run(fakes, find_orphaned(site))
    (removal,) = run(fakes, remove_orphaned(site, found, timeout_s=60))
    assert removal.fault == "still in use"
    assert [each.token for each in store.tombstones()] == [stone.token]


def test_an_order_whose_node_two_readings_deny_has_no_tombstone_any_more(site, fakes, store):
    bury(fakes)
    asyncio.run(fakes.clock.advance(60))
    found = run(fakes, find_orphaned(site))
    assert ([s.token for s in found.ended], found.resources) == (["t9"], ())
    assert len(store.tombstones()) == 1
    run(fakes, remove_orphaned(site, found, timeout_s=60))
    assert store.tombstones() == ()


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_fleet_that_was_not_seen_empty_is_over_once_a_complete_listing_shows_none_of_it(
    site, fakes, store, monkeypatch, is_complete
):
    stone = replace(bury(fakes), replica_id="")
    store.bury(stone)
    whole = fakes.provider.list_nodes

    async def listed(**named: str) -> NodeListing:
        listing: NodeListing = await whole(**named)
        return replace(listing, is_complete=is_complete)

    monkeypatch.setattr(fakes.provider, "list_nodes", listed)
    asyncio.run(fakes.clock.advance(60))
    found = run(fakes, find_orphaned(site))
    assert (found.ended == (stone,)) is is_complete
    assert found.unasked == ({} if is_complete else {"fake": "it lists only a part of what is left of lost"})
    run(fakes, remove_orphaned(site, found, timeout_s=10))
    assert (store.tombstones() == ()) is is_complete


def test_a_provider_that_cannot_be_asked_is_named(site, fakes, store):
    store.next_replica_number("lost")
    fakes.provider.script("list_nodes", Fault(error=CredentialsError("the key has expired")))
    assert run(fakes, find_orphaned(site)).unasked == {"fake": "the key has expired"}


@pytest.mark.parametrize("options", [(), ("--yes",)])
def test_the_command_calls_nothing_gone_where_it_could_not_look(site, fakes, store, capsys, options):
    store.next_replica_number("lost")
    fakes.provider.script("list_nodes", Fault(error=CredentialsError("the key has expired")))
    assert main(["gc", *options], site=site) == 0
    err = capsys.readouterr().err
    assert "what is left at fake was not seen" in err
    assert "nothing" not in err


def test_doctor_counts_tombstones_and_says_what_reads_them(site, fakes, fleet):
    bury(fakes)
    (check,) = [check for check in diagnose(site) if check.name == "tombstones"]
    assert check.found.startswith("1 orders and shared resources")
    assert "fleetctl gc" in check.advice


@pytest.mark.parametrize("fails", [False, True])
def test_the_command_lists_removes_and_tells_by_its_exit_code(site, fakes, store, capsys, fails):
    bury(fakes, "net-1", network(fakes))
    assert main(("gc",), site=site) == 0
    captured = capsys.readouterr()
    assert "net-1" in captured.out
    assert "fleetctl gc --yes" in captured.err
    assert len(store.tombstones()) == 1
    if fails:
        fakes.provider.script("teardown", Fault(error=ProviderError("still in use")))
    assert main(("gc", "--yes"), site=site) == (10 if fails else 0)
    assert ("still in use" in capsys.readouterr().out) is fails
    assert len(store.tombstones()) == fails

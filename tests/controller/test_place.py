"""A fleet is kept where its nodes are, whatever credentials lead to when its controller starts anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.controller.place import known_place
from fleetctl.controller.provider_calls import ProviderCalls
from fleetctl.controller.store_access import InlineAccess
from fleetctl.errors import ProviderError, StateDeniedError, StateError
from fleetctl.model.node_place import NodePlace
from fleetctl.model.replica import ReplicaState
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.testing.clocks import ManualClock
from fleetctl.testing.provider import FakeProvider
from fleetctl.testing.samples import EPOCH
from tests.controller.rig import FLEET, Rig
from tests.controller.store_faults import FaultyStore, as_store
from tests.controller.test_store_faults import Kept

if TYPE_CHECKING:
    from fleetctl.model.status import FleetStatus


class Where:
    """Implements Places: leads wherever the test says."""

    def __init__(self, *ids: str) -> None:
        self.ids = ids
        self.readings = 0
        self.is_away = False

    async def place(self) -> NodePlace | None:
        self.readings += 1
        if self.is_away:
            raise ProviderError("nobody answers")
        return NodePlace(ids=self.ids, name=f"cluster {self.ids[0]}", chosen_by="KUBECONFIG") if self.ids else None


def leading(provider: FakeProvider, where: Where) -> FakeProvider:
    provider.capabilities = replace(provider.capabilities, places=where)
    return provider


def trouble(status: FleetStatus | None) -> str:
    assert status is not None
    return status.reason


def test_a_controller_led_elsewhere_orders_nothing_and_goes_on_once_it_is_led_back(on_rig):
    async def scenario(rig: Rig) -> None:
        where = Where("a")
        leading(rig.provider, where)
        rig.up()
        await rig.run(15.0)
        serving = {each.id for each in rig.replicas(ReplicaState.READY)}
        assert len(serving) == 4
        assert where.readings == 1

        elsewhere = Where("b")
        other = leading(FakeProvider(rig.clock), elsewhere)
        rig.world = replace(rig.world, provider=other)
        async with rig.controller() as controller:
            await rig.clock.sleep(400.0)
            reason = trouble(controller.status())
            assert "the nodes of demo are in cluster a, and these credentials lead to cluster b" in reason
            assert "KUBECONFIG" in reason
            assert {each.id for each in rig.replicas()} == serving
            assert other.orders == []
            assert len(rig.provider.living()) == 4
            assert rig.store.tombstones(FLEET) == ()
            assert 30 <= elsewhere.readings <= 41  # every ten seconds

        rig.world = replace(rig.world, provider=rig.provider)
        status = await rig.run(15.0)
        assert trouble(status) == ""
        assert {each.id for each in rig.replicas(ReplicaState.READY)} == serving

    on_rig(scenario)


def test_a_cluster_with_a_new_authority_is_known_by_the_nodes_in_it(on_rig):
    async def scenario(rig: Rig) -> None:
        where = Where("a")
        leading(rig.provider, where)
        rig.up()
        await rig.run(15.0)
        where.ids = ("b",)
        status = await rig.run(15.0)
        assert len(rig.replicas(ReplicaState.READY)) == 4
        assert trouble(status) == ""
        known = known_place(rig.store, FLEET)
        assert known is not None
        assert known.ids == ("b",)

    on_rig(scenario)


def test_a_fleet_without_nodes_is_brought_up_anywhere(on_rig):
    async def scenario(rig: Rig) -> None:
        leading(rig.provider, Where("a"))
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10.0)
            rig.down()
            await rig.clock.sleep(60.0)
        assert rig.replicas() == []
        rig.provider.capabilities = replace(rig.provider.capabilities, places=Where("b"))
        rig.up()
        await rig.run(15.0)
        assert len(rig.replicas(ReplicaState.READY)) == 4

    on_rig(scenario)


def test_where_that_may_not_be_read_or_is_not_answered(on_rig):
    async def scenario(rig: Rig) -> None:
        where = Where()
        leading(rig.provider, where)
        rig.up()
        await rig.run(15.0)
        assert len(rig.replicas(ReplicaState.READY)) == 4  # unread, it is no obstacle
        assert known_place(rig.store, FLEET) is None

        where.ids, where.is_away = ("a",), True
        async with rig.controller():
            await rig.clock.sleep(30.0)
            assert len(rig.replicas()) == 4
            where.is_away = False
            await rig.clock.sleep(30.0)
        assert len(rig.replicas(ReplicaState.READY)) == 4
        assert known_place(rig.store, FLEET) is not None

    on_rig(scenario)


def test_of_a_fleet_whose_place_is_known_one_that_may_not_be_read_is_known_by_its_nodes_alone(on_rig):
    async def scenario(rig: Rig) -> None:
        where = Where("a")
        leading(rig.provider, where)
        rig.up()
        await rig.run(15.0)
        serving = {each.id for each in rig.replicas(ReplicaState.READY)}
        assert len(serving) == 4

        where.ids = ()
        status = await rig.run(15.0)
        assert trouble(status) == "", "its nodes are there"

        other = leading(FakeProvider(rig.clock), Where())
        rig.world = replace(rig.world, provider=other)
        status = await rig.run(100.0)
        assert "the nodes of demo are in cluster a, and none of them is where these credentials lead" in trouble(status)
        assert {each.id for each in rig.replicas(ReplicaState.READY)} == serving
        assert other.orders == []

    on_rig(scenario)


class Unreadable(FaultyStore):
    """Raises `unsaid` where it is asked where the fleet is."""

    unsaid: Exception | None = None

    def find_record(self, collection: Collection, *rest: Any, **named: Any) -> StoredRecord | None:
        if self.unsaid is not None and collection is Collection.PLACES:
            raise self.unsaid
        return self._target.find_record(collection, *rest, **named)


@pytest.mark.parametrize("kind", [StateError, StateDeniedError])
def test_a_state_that_does_not_say_where_the_fleet_is_is_no_fault_of_the_provider(on_rig, kind):
    async def scenario(rig: Rig) -> None:
        where, store = Where("a"), Unreadable(rig.store)
        leading(rig.provider, where)
        rig.up()
        store.unsaid = kind("s3://team: not now")
        kept = Kept(rig, InlineAccess(as_store(store)))
        await rig.clock.sleep(25.0)
        assert "credentials" not in trouble(kept.controller.status())
        assert rig.provider.orders == []
        assert len(rig.replicas()) == 4, "none is given up for it"
        assert any("where the fleet's nodes are cannot be read: s3://team: not now" in each for each in rig.journal())
        store.unsaid = None
        await rig.clock.sleep(40.0)
        assert len(rig.replicas(ReplicaState.READY)) == 4
        await kept.end()

    on_rig(scenario)


async def test_the_lease_is_looked_at_after_the_place_which_may_take_its_time() -> None:
    clock, order = ManualClock(EPOCH), list[str]()

    async def look(what: str) -> None:
        order.append(what)

    provider = FakeProvider(clock)
    calls = ProviderCalls(
        provider,
        clock,
        owner="me",
        fleet=FLEET,
        verify_lease=lambda: look("lease"),
        confirm_place=lambda: look("place"),
    )
    await calls.stop("node", grace_s=1.0)
    assert order == ["place", "lease"]

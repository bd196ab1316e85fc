"""A store that cannot be written: rotation, probes and notices go on, nothing new is created, all is caught up after."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.controller.loop import Controller
from fleetctl.controller.store_access import InlineAccess
from fleetctl.controller.write_behind import WriteBehindStore
from fleetctl.core.conditions import ConditionReason, fleet_conditions
from fleetctl.errors import DiskFullError, LockHeldError
from fleetctl.model.replica import ReplicaState
from tests.controller.rig import FLEET, Rig
from tests.controller.store_faults import FaultyStore, HungAccess, as_store

if TYPE_CHECKING:
    from fleetctl.controller.store_access import StoreAccess

READY = ReplicaState.READY


class Kept:
    """A controller at work on a rig, by an access of the test's own."""

    def __init__(self, rig: Rig, access: StoreAccess) -> None:
        self.rig = rig
        self.controller = Controller(replace(rig.world, store=WriteBehindStore(access, FLEET, rig.clock)))
        self.task = asyncio.ensure_future(self.controller.run())

    def creates(self) -> int:
        return sum(call.name == "create" for call in self.rig.provider.calls)

    def routed(self) -> set[str]:
        table = self.rig.gateway.table
        return {r.id for r in table.replicas if r.in_rotation} if table else set()

    def condition(self) -> str:
        status = self.controller.status()
        assert status is not None
        found = [c.message for c in fleet_conditions(status) if c.reason_code is ConditionReason.STATE_FAULT]
        return "; ".join(found)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def keep_by_hangable(rig: Rig) -> tuple[HungAccess, Kept]:
    """Bring the fleet up by a store that a test may have hang."""
    rig.up()
    access = HungAccess(rig.store)
    return access, Kept(rig, access)


async def lose_one(rig: Rig, kept: Kept) -> str:
    """End a replica's node; return the replica, which is out of rotation a second later."""
    gone = rig.replicas(READY)[0].id
    assert gone in kept.routed()
    rig.provider.end(rig.token(gone))
    await rig.clock.sleep(1.0)
    assert gone not in kept.routed()
    return gone


@pytest.mark.parametrize("reads", [False, True])
def test_a_hung_store_delays_neither_rotation_nor_notices_and_is_caught_up_with(on_rig, reads):
    async def scenario(rig: Rig) -> None:
        access, kept = keep_by_hangable(rig)
        await rig.clock.sleep(10)
        assert len(rig.replicas(READY)) == 4
        creates = kept.creates()
        access.hang(reads=reads)
        gone = await lose_one(rig, kept)
        spot = next(r for r in rig.replicas(READY) if r.market.value == "spot" and r.id != gone)
        await rig.provider.interrupt(spot.node_id, notice_s=15.0)
        await rig.clock.sleep(1.0)
        assert spot.id not in kept.routed()
        await rig.clock.sleep(43)
        assert "state" in kept.condition()
        assert kept.creates() == creates
        access.let_go()
        await rig.clock.sleep(8)
        assert kept.condition() == ""
        assert len(rig.replicas(READY)) == 4
        assert kept.creates() == creates + 2
        assert {r.id for r in rig.replicas(READY)} == kept.routed()
        await kept.end()

    on_rig(scenario)


@pytest.mark.parametrize(
    ("fault", "shown"),
    [(DiskFullError("state.db: disk full"), "disk full"), (LockHeldError("state.db stayed locked"), "state locked")],
)
def test_a_store_that_refuses_every_write_neither_ends_nor_blinds_the_controller(on_rig, fault, shown):
    async def scenario(rig: Rig) -> None:
        rig.up()
        store = FaultyStore(rig.store)
        kept = Kept(rig, InlineAccess(as_store(store)))
        await rig.clock.sleep(10)
        creates = kept.creates()
        store.fault = fault
        await lose_one(rig, kept)
        await rig.clock.sleep(60)
        assert not kept.task.done()
        assert shown in kept.condition()
        assert kept.creates() == creates
        store.fault = None
        await rig.clock.sleep(8)
        assert kept.condition() == ""
        assert len(rig.replicas(READY)) == 4
        assert kept.creates() == creates + 1
        await kept.end()

    on_rig(scenario)


def test_no_node_is_ordered_before_its_intent_is_in_the_store(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        access = HungAccess(rig.store)
        access.hang()
        kept = Kept(rig, access)
        await rig.clock.sleep(30)
        assert kept.creates() == 0
        assert rig.replicas() == []
        access.let_go()
        await rig.clock.sleep(10)
        assert len(rig.replicas(READY)) == 4
        assert kept.creates() == 4
        await kept.end()

    on_rig(scenario)


def test_what_was_not_written_is_done_again_by_the_next_controller_and_never_twice(on_rig):
    async def scenario(rig: Rig) -> None:
        access, kept = keep_by_hangable(rig)
        await rig.clock.sleep(3)
        access.hang()
        await rig.clock.sleep(5)
        await kept.end()
        await rig.run(15)
        assert len(rig.replicas(READY)) == 4
        assert len(rig.provider.live_tokens) == 4

    on_rig(scenario)


def test_a_fleet_whose_store_hangs_while_it_goes_down_is_gone_once_it_answers(on_rig):
    async def scenario(rig: Rig) -> None:
        access, kept = keep_by_hangable(rig)
        await rig.clock.sleep(10)
        rig.down()
        await rig.clock.sleep(2)
        access.hang()
        await rig.clock.sleep(30)
        assert not kept.task.done()
        access.let_go()
        await rig.clock.sleep(30)
        assert kept.task.done()
        assert not rig.replicas()
        assert not rig.provider.live_tokens
        rig.store.remove_fleet(FLEET)

    on_rig(scenario)


@pytest.mark.parametrize(("locked_s", "stops"), [(40.0, 0), (90.0, 1)])
def test_no_node_is_told_to_end_before_that_is_in_the_journal_unless_it_cannot_be_for_long(on_rig, locked_s, stops):
    async def scenario(rig: Rig) -> None:
        access, kept = keep_by_hangable(rig)
        await rig.clock.sleep(10)
        leaving = rig.replicas(READY)[0].id
        rig.store.request_drain(FLEET, leaving, now=rig.clock.now())
        access.hang()
        await rig.clock.sleep(locked_s)
        assert sum(call.name == "stop" for call in rig.provider.calls) == stops
        access.let_go()
        await rig.clock.sleep(10)
        assert "stop" in {line.action for line in rig.store.journal(FLEET) if line.subject.name == leaving}
        assert leaving not in {r.id for r in rig.replicas()}
        await kept.end()

    on_rig(scenario)

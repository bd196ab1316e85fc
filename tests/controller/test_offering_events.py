"""What a provider sees of its machines: what is sold is read again soon, not too often, and what there is more of is tried again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import Market
from fleetctl.model.replica import ReplicaState
from fleetctl.testing import samples

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.controller.rig import Rig


class Machines:
    """Tells of changes when a test says so."""

    def __init__(self, rig: Rig) -> None:
        self._queue: asyncio.Queue[frozenset[str]] = asyncio.Queue()
        rig.provider.capabilities = replace(rig.provider.capabilities, offering_events=self)

    async def watch_offerings(self) -> AsyncIterator[frozenset[str]]:
        while True:
            yield await self._queue.get()

    def change(self, *grown: str) -> None:
        self._queue.put_nowait(frozenset(grown))


def readings(rig: Rig) -> int:
    return sum(call.name == "offerings" for call in rig.provider.calls)


def test_machines_that_have_come_are_used_within_seconds_though_all_had_been_refused(on_rig):
    async def scenario(rig: Rig) -> None:
        machines = Machines(rig)
        keys = [samples.offering(market=market).key for market in Market]
        rig.provider.stock = dict.fromkeys(keys, 0)
        rig.up()
        async with rig.controller() as controller:
            await rig.clock.sleep(120.0)  # the next attempt waits for minutes by now
            assert not rig.replicas(ReplicaState.READY)
            seen = controller.status()
            assert seen is not None
            assert all("offering fits" in str(lane.reasons) for lane in seen.lanes)
            rig.provider.stock = {}
            machines.change(*keys)
            await rig.clock.sleep(20.0)
            assert len(rig.replicas(ReplicaState.READY)) == 4

    on_rig(scenario)


def test_however_many_change_it_is_read_every_five_seconds_at_most_and_else_not(on_rig):
    async def scenario(rig: Rig) -> None:
        machines = Machines(rig)
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(30.0)
            assert readings(rig) == 1
            for _ in range(300):
                machines.change()
                await rig.clock.sleep(0.1)
            assert 5 <= readings(rig) <= 8
            await rig.clock.sleep(10.0)
            before = readings(rig)
            await rig.clock.sleep(60.0)
            assert readings(rig) == before

    on_rig(scenario)

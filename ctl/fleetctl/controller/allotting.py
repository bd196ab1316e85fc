"""Exchanges allotments and holdings with several gateways, ten times a second; with one it does nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from fleetctl.core.allotment import Allotter
from fleetctl.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleetctl.controller.several_gateways import SeveralGateways
    from fleetctl.controller.world import World
    from fleetctl.model.allotment import Allotment
    from fleetctl.model.gateway import RoutingTable
    from fleetctl.ports.runtime import GatewayHost

EXCHANGE_S: Final = 0.1


class Allotting:
    """One controller's exchange; `table` is the one that is published, or is about to be."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._allotter = Allotter(world.epoch)
        self._pid_alone = 0  # the pid of the only gateway, which has been reported that it is
        self._lock = asyncio.Lock()
        self._pending: dict[int, asyncio.Task[None]] = {}  # those that are silent, beside the exchange
        self.table: RoutingTable | None = None

    async def keep(self) -> None:
        """Exchange for ever."""
        gateways = self._world.gateways
        try:
            while gateways is not None:
                await self._world.clock.sleep(EXCHANGE_S)
                if self.table is not None and self._is_several(gateways):
                    await self.exchange()
        finally:
            for each in self._pending.values():
                each.cancel()

    async def prepare(self, table: RoutingTable) -> None:
        """Give each its part of a table that is not published yet, so that no gateway has a lane without places."""
        self.table = table
        gateways = self._world.gateways
        if gateways is not None and self._is_several(gateways):
            await self.exchange()

    def _is_several(self, gateways: SeveralGateways) -> bool:
        """Whether limits are to be divided, or the only gateway has a part from when they were."""
        if gateways.are_several:
            self._pid_alone = 0
            return True
        only = gateways.seen.get(1)
        return only is not None and only.is_beside and self._pid_alone != only.pid

    async def exchange(self) -> None:
        """Lower those who are to have less, then raise those who are to have more."""
        gateways, table, host = self._world.gateways, self.table, self._world.gateway_host
        if gateways is None or table is None:
            return
        async with self._lock:
            numbers = [n for n in gateways.numbers if _lives(host, n)]
            self._allotter.living(numbers)
            if not gateways.are_several:
                await self._tell_alone(gateways, host)
                return
            if not numbers:
                return
            self._query_silent(gateways, numbers)
            numbers = [n for n in numbers if n not in self._pending]
            self._allotter.plan(table)
            for allotment_of, or_reports in ((self._allotter.lowered, True), (self._allotter.raised, False)):
                self._allotter.begin()
                answering = [n for n in numbers if not self._allotter.is_silent(n)]
                calls = [self._call(gateways, n, allotment_of, or_reports=or_reports) for n in answering]
                if or_reports:
                    await asyncio.gather(*calls)
                else:
                    # What one is given is nobody else's any more, so each is decided after the one before.
                    for call in calls:
                        await call

    async def _call(
        self,
        gateways: SeveralGateways,
        number: int,
        allotment_of: Callable[[int], Allotment | None],
        *,
        or_reports: bool,
    ) -> None:
        allotment, client = allotment_of(number), gateways.client(number)
        if allotment is None and not or_reports:
            return
        try:
            found = await client.holdings(self._world.epoch) if allotment is None else await client.allot(allotment)
        except UnavailableError:
            self._allotter.missed(number)  # it keeps its share; that it is silent is the observation's to say
        else:
            self._allotter.heard(number, found)

    def _query_silent(self, gateways: SeveralGateways, numbers: Sequence[int]) -> None:
        """Ask those that are silent, which may take as long as a call may: the others' exchange does not wait for it."""
        for number, task in list(self._pending.items()):
            if task.done():
                task.result()
                del self._pending[number]
        for number in numbers:
            if self._allotter.is_silent(number) and number not in self._pending:
                call = self._call(gateways, number, lambda _: None, or_reports=True)
                self._pending[number] = asyncio.create_task(call)

    async def _tell_alone(self, gateways: SeveralGateways, host: GatewayHost) -> None:
        """Tell the only gateway that everything is its own, once no other lives."""
        only = gateways.seen.get(1)
        if only is None or host.living() not in ((1,), ()):
            return
        self._allotter.begin()
        try:
            await gateways.client(1).allot(self._allotter.alone())
        except UnavailableError:
            return  # asked again at the next exchange
        self._pid_alone = only.pid


def _lives(host: GatewayHost, number: int) -> bool:
    return host.numbered(number).is_alive()

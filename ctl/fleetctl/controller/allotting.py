"""Exchanges allotments and holdings with several gateways, ten times a second; with one it does nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from fleetctl.core.allotment import Allotter
from fleetctl.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.controller.several_gateways import SeveralGateways
    from fleetctl.controller.world import World
    from fleetctl.model.allotment import Allotment
    from fleetctl.model.gateway import RoutingTable
    from fleetctl.ports.host import GatewayHost

EXCHANGE_S: Final = 0.1


class Allotting:
    """One controller's exchange; `table` is the one that is published, or is about to be."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._allotter = Allotter(world.epoch)
        self._pid_alone = 0  # the pid of the only gateway, which has been reported that it is
        self._lock = asyncio.Lock()
        self.table: RoutingTable | None = None

    async def keep(self) -> None:
        """Exchange for ever."""
        gateways = self._world.gateways
        while gateways is not None:
            await self._world.clock.sleep(EXCHANGE_S)
            if self.table is not None and self._is_several(gateways):
                await self.exchange()

    async def prepare(self, table: RoutingTable) -> None:
        """Give each its part of a table that is not published yet, so that no gateway has a lane without places."""
        self.table = table
        gateways = self._world.gateways
        if gateways is not None and self._is_several(gateways):
            await self.exchange()

    def _is_several(self, gateways: SeveralGateways) -> bool:
        """Whether limits are to be divided, or the only gateway has a part from when they were."""
        if len(gateways.numbers) > 1:
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
            if gateways.numbers == (1,):
                await self._tell_alone(gateways, host)
                return
            if not numbers:
                return
            self._allotter.plan(table)
            for allotment_of, or_reports in ((self._allotter.lowered, True), (self._allotter.raised, False)):
                self._allotter.begin()
                calls = [self._call(gateways, n, allotment_of, or_reports=or_reports) for n in numbers]
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
            return  # it keeps its share; that it is silent is the observation's to say
        self._allotter.heard(number, found)

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

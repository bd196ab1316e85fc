"""All gateways of a fleet as one: what is handed over goes to each, and what is asked comes of all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from fleetctl.core.gateway_merge import merged_snapshot
from fleetctl.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from fleetctl.core.gateway_merge import GatewayParts
    from fleetctl.model.allotment import Allotment, GatewayHoldings
    from fleetctl.model.gateway import GatewaySnapshot, RoutingTable, SignalFeed
    from fleetctl.model.slo_feed import SloFeed


class OneGatewayClient(Protocol):
    """Speaks to one of several. Calls raise UnavailableError when it does not answer."""

    async def snapshot(self) -> GatewaySnapshot:
        """Return its figures."""
        ...

    async def parts(self) -> GatewayParts:
        """Return its figures and what they were made of."""
        ...

    async def put_table(self, table: RoutingTable) -> int:
        """Hand over a table; return the version at work after it."""
        ...

    async def put_signals(self, feed: SignalFeed) -> None:
        """Hand over what engines said of themselves."""
        ...

    async def put_slo(self, feed: SloFeed) -> None:
        """Hand over the readings of budgets and alerts."""
        ...

    async def allot(self, allotment: Allotment) -> GatewayHoldings:
        """Hand over its part of the limits; return what it has, by a newer one perhaps."""
        ...

    async def holdings(self, epoch: int) -> GatewayHoldings:
        """Return what it has, and have it take nothing of a controller older than this epoch."""
        ...


class SeveralGateways:
    """Implements GatewayClient over those that are named last; of one alone it is that one's client."""

    def __init__(self, client_of: Callable[[int], OneGatewayClient]) -> None:
        self._client_of = client_of
        self.numbers: tuple[int, ...] = (1,)
        self.seen: dict[int, GatewaySnapshot] = {}  # of those that answered the last time, by number

    def client(self, number: int) -> OneGatewayClient:
        """Return the client of one of them."""
        return self._client_of(number)

    async def snapshot(self) -> GatewaySnapshot:
        """Return the figures of all that answer. Raises UnavailableError where none does."""
        if self.numbers == (1,):
            self.seen = {}
            self.seen = {1: await self._client_of(1).snapshot()}
            return self.seen[1]
        parts = await _answers({number: self._client_of(number).parts() for number in self.numbers})
        self.seen = {number: each.snapshot for number, each in parts.items()}
        if not parts:
            raise UnavailableError(f"none of {len(self.numbers)} gateways answers")
        return merged_snapshot(list(parts.values()))

    async def put_table(self, table: RoutingTable) -> int:
        """Hand over a table to all; return the oldest version at work after it."""
        return min(await self._each(lambda client: client.put_table(table)), default=table.version)

    async def put_signals(self, feed: SignalFeed) -> None:
        """Hand them over to all."""
        await self._each(lambda client: client.put_signals(feed))

    async def put_slo(self, feed: SloFeed) -> None:
        """Hand them over to all."""
        await self._each(lambda client: client.put_slo(feed))

    async def _each(self, call: Callable[[OneGatewayClient], Coroutine[object, object, int | None]]) -> list[int]:
        """Call every one that answered the last time, then raise what the first that failed raised: one that is silent keeps nobody from being told."""
        numbers = [n for n in self.numbers if n in self.seen] or self.numbers
        found = await asyncio.gather(*(call(self._client_of(n)) for n in numbers), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return [each for each in found if isinstance(each, int)]


async def _answers(calls: dict[int, Coroutine[object, object, GatewayParts]]) -> dict[int, GatewayParts]:
    found = await asyncio.gather(*calls.values(), return_exceptions=True)
    return {number: each for number, each in zip(calls, _known(found), strict=True) if each is not None}


def _known(found: Iterable[GatewayParts | BaseException]) -> Iterable[GatewayParts | None]:
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, UnavailableError):
            raise each
        yield None if isinstance(each, BaseException) else each

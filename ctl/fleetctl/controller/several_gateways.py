"""All gateways of a fleet as one: what is handed over goes to each, and what is asked comes of all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from fleetctl.core.gateway_merge import merged_snapshot
from fleetctl.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

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
    """Implements GatewayClient over those that are named last; of one alone it is that one's client.

    Of remote ones another may come at any moment, so that each has its part of the limits even where it is alone.
    """

    def __init__(self, client_of: Callable[[int], OneGatewayClient], *, are_remote: bool = False) -> None:
        self._client_of = client_of
        self._are_remote = are_remote
        self.numbers: tuple[int, ...] = (1,)
        self.seen: dict[int, GatewaySnapshot] = {}  # of those that answered the last time, by number
        self._pending: dict[int, asyncio.Task[GatewayParts]] = {}
        self._silent: set[int] = set()  # of those asked, who did not answer the last time

    def client(self, number: int) -> OneGatewayClient:
        """Return the client of one of them."""
        return self._client_of(number)

    @property
    def are_several(self) -> bool:
        """Whether limits are divided, and each is judged by itself."""
        return self._are_remote or self.numbers != (1,)

    async def snapshot(self) -> GatewaySnapshot:
        """Return the figures of all that answer. Raises UnavailableError where none does."""
        if len(self.numbers) == 1:
            (only,) = self.numbers
            self.seen = {}
            self.seen = {only: await self._client_of(only).snapshot()}
            return self.seen[only]
        parts = await self._parts()
        self.seen = {number: each.snapshot for number, each in parts.items()}
        if not parts:
            raise UnavailableError(f"none of {len(self.numbers)} gateways answers")
        return merged_snapshot(list(parts.values()))

    async def _parts(self) -> dict[int, GatewayParts]:
        """Return what each said that answers. One that was silent is waited for no second time while others answer."""
        for number in self._pending.keys() - {*self.numbers}:
            self._pending.pop(number).cancel()
        for number in self.numbers:
            if number not in self._pending:
                self._pending[number] = asyncio.create_task(self._client_of(number).parts())
        waited_for = [task for n, task in self._pending.items() if n not in self._silent] or [*self._pending.values()]
        if waited_for:  # of remote ones there may be none
            await asyncio.wait(waited_for)
        ended = {number: self._pending.pop(number) for number in self.numbers if self._pending[number].done()}
        found = {number: each for number, task in ended.items() if (each := _answer(task)) is not None}
        self._silent = {*self.numbers} - found.keys()
        return found

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


def _answer(task: asyncio.Task[GatewayParts]) -> GatewayParts | None:
    """Return what one said; None: it did not answer."""
    try:
        return task.result()
    except UnavailableError:
        return None

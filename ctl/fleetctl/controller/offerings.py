"""What the provider sells, read in the background now and then and after changes; and what of it cannot be had for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fleetctl.core.plan.offers import priced
from fleetctl.errors import ProviderError
from fleetctl.model.catalogue import OfferingKey
from fleetctl.model.subject import FLEET

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from fleetctl.controller.journal import Journal
    from fleetctl.controller.provider_calls import ProviderCalls
    from fleetctl.controller.world import World
    from fleetctl.errors import UnobtainableError
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.node import Node, NodeRequest
    from fleetctl.model.replica import Replica
    from fleetctl.ports.provider import OfferingEvents

_AGAIN_S = 600.0
_AFTER_FAILURE_S = 5.0
# Machines come and are cordoned one soon after the other; this much is gathered, and so often is it read at most.
_GATHER_S = 0.3
_CHANGED_AGAIN_S = 5.0
_WATCH_AGAIN_S = 1.0
# What had no stock is left alone for this long, as the clouds' own fleets do (Karpenter: three minutes), unless the
# provider knows better.
_UNOBTAINABLE_S = 180.0


class Offerings:
    """The latest answer, and the offerings to avoid."""

    def __init__(self, world: World, calls: ProviderCalls, journal: Journal, on_change: Callable[[], None]) -> None:
        self._world = world
        self._calls = calls
        self._journal = journal
        self._on_change = on_change
        self._until_s: dict[str, float] = {}
        self._refused_at: dict[str, datetime] = {}
        self._changed = asyncio.Event()
        self._grown: set[str] = set()  # keys of what there is more of since the last answer; bounded by what is sold
        self.latest: tuple[Offering, ...] = ()
        self.grown_at: datetime | None = None  # there was last more of something than before; None: not seen yet

    async def keep_fresh(self) -> None:
        """Read for ever."""
        while True:
            self._changed.clear()
            grown, self._grown = self._grown, set()
            read_s = self._world.clock.monotonic_s()
            try:
                sold = await self._calls.offerings()
            except ProviderError as exc:
                self._grown |= grown
                self._journal.failed(FLEET, "offerings", exc)
                await self._world.clock.sleep(_AFTER_FAILURE_S)
                continue
            before, fleet = self.latest, self._world.store.fleet()
            self.latest = sold if fleet is None else priced(sold, fleet.profile.capacity)
            self._note_grown(grown)
            if grown or self.latest != before:
                self._on_change()
            await self._until_due(read_s)

    async def keep_watching(self, events: OfferingEvents) -> None:
        """Have it read again soon after a change, for ever; a stream that breaks is opened again."""
        while True:
            try:
                async for grown in events.watch_offerings():
                    self._grown |= grown
                    self._changed.set()
            except ProviderError as exc:
                self._journal.failed(FLEET, "watch-offerings", exc)
            await self._world.clock.sleep(_WATCH_AGAIN_S)

    async def _until_due(self, read_s: float) -> None:
        try:
            async with asyncio.timeout(_AGAIN_S):
                await self._changed.wait()
        except TimeoutError:
            return
        since_s = self._world.clock.monotonic_s() - read_s
        await self._world.clock.sleep(max(_GATHER_S, _CHANGED_AGAIN_S - since_s))

    def _note_grown(self, keys: set[str]) -> None:
        """Avoid no longer what there is more of than when it was refused."""
        if keys:
            self.grown_at = self._world.clock.now()
        for key in keys:
            self._until_s.pop(key, None)

    def sold_of(self, record: Replica, node: Node) -> Offering | None:
        """Return the offering a node names where its replica's record does not know it; None: it does, or it is not sold."""
        if not node.offering or (node.offering == record.offering and record.gpu and record.is_price_known):
            return None
        return next((offering for offering in self.latest if offering.key == node.offering), None)

    def unobtainable(self) -> frozenset[str]:
        """Return the keys of offerings that lately could not be had."""
        now_s = self._world.clock.monotonic_s()
        self._until_s = {key: until_s for key, until_s in self._until_s.items() if until_s > now_s}
        return frozenset(self._until_s)

    def refused(self) -> dict[str, datetime]:
        """Return when each offering that is now avoided last had no stock, by its key."""
        return {key: self._refused_at[key] for key in sorted(self.unobtainable())}

    def note_unobtainable(self, request: NodeRequest, why: UnobtainableError) -> None:
        """Avoid for a while what an error speaks of; one that names nothing speaks of what was ordered."""
        avoided_s = _UNOBTAINABLE_S if why.again_s is None else why.again_s
        until_s, now = self._world.clock.monotonic_s() + avoided_s, self._world.clock.now()
        requested = {request.offering, *request.alternatives}
        named = bool(why.instance_type or why.zone or why.market)
        # An earlier controller's order may be refused before the provider has told this one what it sells.
        for key in {*(offering.key for offering in self.latest), *requested}:
            if _matches(why, OfferingKey.parse(key)) if named else key in requested:
                self._until_s[key] = until_s
                self._refused_at[key] = now

    def note_out_of_stock(self, key: str) -> None:
        """Avoid for a while the offering that an order was taken for, and that has no machine for it."""
        if key not in self.unobtainable():
            self._until_s[key] = self._world.clock.monotonic_s() + _UNOBTAINABLE_S
            self._refused_at[key] = self._world.clock.now()


def _matches(why: UnobtainableError, key: OfferingKey) -> bool:
    return (
        why.instance_type in ("", key.instance_type) and why.zone in ("", key.zone) and why.market in ("", key.market)
    )

"""Keeps the provider's listing fresh, twice a tick, so that a notice or a death is acted on within a second."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fleetctl.errors import ProviderError
from fleetctl.model.node import Node
from fleetctl.model.subject import FLEET

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.controller.journal import Journal
    from fleetctl.controller.world import World

_DEADLINE_S = 10.0
_AGE_S_MAX = 5.0  # older than this nothing is believed from it


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One answer of the provider; `asked_at` is when it was asked, so it knows nothing younger."""

    nodes: tuple[Node, ...]
    asked_at: datetime
    asked_s: float


class Listing:
    """The latest answer."""

    def __init__(self, world: World, journal: Journal, on_change: Callable[[], None]) -> None:
        self._world = world
        self._journal = journal
        self._on_change = on_change
        self._latest: Listed | None = None
        self._seen: frozenset[tuple[object, ...]] = frozenset()

    def latest(self, tick_s: float) -> Listed | None:
        """Return the latest answer if it is young enough to be believed."""
        latest = self._latest
        if latest is None or self._world.clock.monotonic_s() - latest.asked_s > max(_AGE_S_MAX, 3 * tick_s):
            return None
        return latest

    async def refresh(self) -> None:
        """Ask the provider once. A failure is journalled, and the latest answer ages."""
        world = self._world
        asked_at, asked_s = world.clock.now(), world.clock.monotonic_s()
        try:
            async with asyncio.timeout(_DEADLINE_S):
                nodes = await world.provider.list_nodes(owner=world.store.owner, fleet=world.fleet)
        except (ProviderError, TimeoutError) as exc:
            error = ProviderError(f"no listing in {_DEADLINE_S:g} s") if isinstance(exc, TimeoutError) else exc
            self._journal.failed(FLEET, "list-nodes", error)
            return
        self._latest = Listed(nodes=nodes, asked_at=asked_at, asked_s=asked_s)
        seen = frozenset((node.id, node.state, node.notice_deadline) for node in nodes)
        if seen != self._seen:
            self._seen = seen
            self._on_change()

    async def keep_fresh(self, interval_s: Callable[[], float]) -> None:
        """Ask for ever."""
        while True:
            await self.refresh()
            await self._world.clock.sleep(interval_s())

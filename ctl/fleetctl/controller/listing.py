"""Keeps what is known of the nodes fresh: listings at the provider's own pace, its events, and questions by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import ProviderError, ThrottledError
from fleetctl.model.subject import FLEET

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.controller.background import BackgroundTasks
    from fleetctl.controller.journal import Journal
    from fleetctl.controller.node_cache import NodeCache
    from fleetctl.controller.provider_calls import ProviderCalls
    from fleetctl.controller.world import World
    from fleetctl.ports.provider import NodeEvents

_WATCH_AGAIN_S = 1.0
_QUESTIONS_MAX = 8  # by token, at once
_QUESTION_INTERVAL_S_MIN = 1.0


class Listing:
    """Fills the node cache for as long as it runs."""

    def __init__(  # what it works with, each named
        self,
        world: World,
        *,
        calls: ProviderCalls,
        cache: NodeCache,
        background: BackgroundTasks,
        journal: Journal,
        on_change: Callable[[], None],
    ) -> None:
        self._world = world
        self._calls = calls
        self._cache = cache
        self._background = background
        self._journal = journal
        self._on_change = on_change
        self.is_awaited = True  # the first question has not been answered, nor has its deadline passed
        self._looked_up_s: dict[str, float] = {}  # token -> last asked about

    @property
    def is_young(self) -> bool:
        """Whether the latest complete listing is young enough to believe what it does not show."""
        as_of = self._cache.listed_as_of
        if as_of is None:
            return False
        return (self._world.clock.now() - as_of).total_seconds() <= self._world.provider.pace.listing_age_s_max

    async def refresh(self) -> None:
        """Ask for the nodes once. A failure is journalled, and the latest answer ages."""
        try:
            listing = await self._calls.list_nodes()
        except ProviderError as exc:
            self._journal.failed(FLEET, "list-nodes", exc)
            return
        finally:
            self.is_awaited = False
        was_young = self.is_young
        if self._cache.put_listing(listing) or not was_young:
            self._on_change()

    async def keep_fresh(self) -> None:
        """Ask for ever, as often as the provider allows."""
        while True:
            await self.refresh()
            await self._world.clock.sleep(self._world.provider.pace.list_interval_s)

    async def keep_watching(self, events: NodeEvents) -> None:
        """Take in events for ever; a stream that breaks is opened again."""
        while True:
            try:
                async for node in events.watch(owner=self._world.store.owner, fleet=self._world.fleet):
                    if self._cache.put_node(node, at=self._world.clock.now(), is_event=True):
                        self._on_change()
            except ProviderError as exc:
                self._journal.failed(FLEET, "watch", exc)
            await self._world.clock.sleep(_WATCH_AGAIN_S)

    def look_up(self, token: str) -> None:
        """Ask about one order that the listings do not show, in the background; not oftener than they come."""
        if self._background.count("describe") >= _QUESTIONS_MAX:
            return
        now_s = self._world.clock.monotonic_s()
        interval_s = max(_QUESTION_INTERVAL_S_MIN, self._world.provider.pace.list_interval_s)
        self._looked_up_s = {t: at_s for t, at_s in self._looked_up_s.items() if now_s - at_s < interval_s}
        if token in self._looked_up_s:
            return
        if self._background.start(f"describe/{token}", lambda: self._describe(token), wakes=False):
            self._looked_up_s[token] = now_s

    async def _describe(self, token: str) -> None:
        at = self._world.clock.now()
        try:
            node = await self._calls.describe(token)
        except ThrottledError:
            return  # said in the status; it is asked again
        except ProviderError as exc:
            self._journal.failed(FLEET, "describe", exc)
            return
        if node is None:
            self._cache.put_absent(token, at=at)
        else:
            self._cache.put_node(node, at=at)
        self._on_change()

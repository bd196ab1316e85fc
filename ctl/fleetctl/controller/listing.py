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
_WATCH_S_MIN = 90.0  # a stream that breaks sooner, again, never was one: a call in vain takes a minute at most
_EVENTS = "events"  # as the source of warnings
_QUESTIONS_MAX = 8  # by token, at once
_QUESTION_INTERVAL_S_MIN = 1.0
_LATE_S = 5.0  # beyond what the provider takes otherwise: then people are told, long before what it showed is doubted


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
        self.has_failed = False  # the latest call failed, or its deadline passed
        self.is_partial = False  # the latest answer lacked pages
        self._asked_at_s: float | None = None  # when the call under way began
        self._answered_at_s: float | None = None  # the latest answer came
        self._taken_s = 0.0  # by the latest complete listing, from what it says to its answer
        self._looked_up_s: dict[str, float] = {}  # token -> last asked about
        self._to_look_up: dict[str, None] = {}  # tokens to ask about, in this order
        self._breaks = 0  # of the stream of events, one soon after the other

    @property
    def is_current(self) -> bool:
        """Whether the latest complete listing is the latest there can be, so that what it does not show is believed.

        It is while the next one is under way within its deadline, however long listings take.
        """
        as_of = self._cache.listed_as_of
        if as_of is None:
            return False
        age_s = (self._world.clock.now() - as_of).total_seconds()
        return age_s <= self._world.provider.pace.listing_age_s_max(self._taken_s)

    @property
    def asked_s(self) -> float:
        """How long the call under way has lasted; 0: none is."""
        return 0.0 if self._asked_at_s is None else self._world.clock.monotonic_s() - self._asked_at_s

    @property
    def silent_s(self) -> float:
        """For how long the provider has said nothing; 0: that is no longer than usual."""
        if self._answered_at_s is None:
            return 0.0
        pace = self._world.provider.pace
        usual_s = pace.list_interval_s + 2.0 * max(self._taken_s, pace.list_latency_s)
        silent_s = self._world.clock.monotonic_s() - self._answered_at_s
        return silent_s if silent_s > usual_s + _LATE_S else 0.0

    async def refresh(self) -> None:
        """Ask for the nodes once. A failure is journalled, and the latest answer ages."""
        self._asked_at_s = self._world.clock.monotonic_s()
        try:
            listing = await self._calls.list_nodes()
        except ProviderError as exc:
            # Throttled, it did answer; that is said by itself.
            self.has_failed = not isinstance(exc, ThrottledError)
            if not self.has_failed:
                self._answered_at_s = self._world.clock.monotonic_s()
            self._journal.failed(FLEET, "list-nodes", exc)
            return
        finally:
            self._asked_at_s = None
        self.has_failed, self.is_partial = False, not listing.is_complete
        self._answered_at_s = self._world.clock.monotonic_s()
        was_current = self.is_current
        if listing.is_complete:
            self._taken_s = max(0.0, (self._world.clock.now() - listing.as_of).total_seconds())
        if self._cache.put_listing(listing) or not was_current:
            self._on_change()

    async def keep_fresh(self) -> None:
        """Ask for ever, as often as the provider allows."""
        while True:
            await self.refresh()
            await self._world.clock.sleep(self._world.provider.pace.list_interval_s)

    async def keep_watching(self, events: NodeEvents) -> None:
        """Take in events for ever; a stream that breaks is opened again, and the status says so while it cannot be."""
        while True:
            opened_s = self._world.clock.monotonic_s()
            try:
                async for node in events.watch(owner=self._world.store.owner, fleet=self._world.fleet):
                    self._calls.warned(_EVENTS, ())
                    if self._cache.put_node(node, at=self._world.clock.now(), is_event=True):
                        self._on_change()
            except ProviderError as exc:
                self._journal.failed(FLEET, "watch", exc)
                self._note_break(exc, lasted_s=self._world.clock.monotonic_s() - opened_s)
            await self._world.clock.sleep(_WATCH_AGAIN_S)

    def _note_break(self, error: ProviderError, *, lasted_s: float) -> None:
        self._breaks = self._breaks + 1 if lasted_s < _WATCH_S_MIN else 1
        if self._breaks > 1:
            message = f"the provider's notices do not come, and an interruption may be told to nobody: {error.message}"
            self._calls.warned(_EVENTS, (message,))

    def look_up(self, token: str) -> None:
        """Ask about one order that the listings do not show, in the background; not oftener than they come.

        Orders take turns: one whose answers change nothing keeps no other from being asked about.
        """
        now_s = self._world.clock.monotonic_s()
        interval_s = max(_QUESTION_INTERVAL_S_MIN, self._world.provider.pace.list_interval_s)
        self._looked_up_s = {t: at_s for t, at_s in self._looked_up_s.items() if now_s - at_s < interval_s}
        if token not in self._looked_up_s:
            self._to_look_up[token] = None
        while self._to_look_up and self._background.count("describe") < _QUESTIONS_MAX:
            self._look_up_now(next(iter(self._to_look_up)), now_s)

    def _look_up_now(self, token: str, now_s: float) -> None:
        del self._to_look_up[token]
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

"""One controller process of a run: it can be killed at any await, and what is dead writes, calls and hears nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fleetctl.controller.loop import Controller
from fleetctl.controller.world import World
from fleetctl.errors import DiskFullError, FencedError, LockHeldError, ThrottledError
from tests.torture.faults import FaultKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fleetctl.model.node import CreateResult, Node, NodeRequest
    from fleetctl.model.shared import SharedResource
    from fleetctl.ports.provider import Provider, ProviderCapabilities
    from fleetctl.ports.store import StateStore
    from fleetctl.testing.clocks import LoopClock
    from tests.torture.checks import Checks
    from tests.torture.cloud import TortureCloud
    from tests.torture.faults import Injector

T = TypeVar("T")

_WRITE_S, _READ_S = 0.004, 0.001
_SLOW_STORE_S = 1.2
_BUSY_S = 0.5  # until SQLite gives up waiting for a lock
_WATCHED = frozenset({"append", "begin_replicas", "put_memory", "put_replica", "settle_intents"})


class KilledError(BaseException):
    """The controller's process is no more; nothing of it may catch this."""


@dataclass(slots=True, eq=False)
class Life:
    """One controller process. Armed, it dies so many steps later, before or after that step's effect."""

    epoch: int
    died: asyncio.Event
    steps_left: int | None = None
    before_effect: bool = True
    is_over: bool = False
    is_fenced: bool = False  # another has taken the fleet over
    not_before_s: dict[str, float] = field(default_factory=dict)  # call -> the provider said so
    avoided_s: dict[str, tuple[float, float]] = field(default_factory=dict)  # offering without stock -> from, until
    world: World | None = None
    controller: Controller | None = None
    task: asyncio.Task[None] | None = None
    began_s: float = 0.0

    def step(self, *, is_before: bool) -> None:
        """Go one step on. Raises KilledError in a process that has died, or dies here."""
        if self.is_over:
            raise KilledError
        if self.steps_left is not None and is_before is self.before_effect:
            self.steps_left -= 1
            if self.steps_left <= 0:
                self.kill()
                raise KilledError

    def kill(self) -> None:
        """Be no more from this instant on."""
        self.is_over = True
        self.died.set()

    def forget_provider(self) -> None:
        """Have it begin anew with fresh eyes, as a controller does whose clock was set."""
        self.not_before_s.clear()
        self.avoided_s.clear()


class WatchedStore:
    """Stands before a store; what is written is told to the checks, with the life that wrote it."""

    def __init__(self, target: StateStore, life: Life, checks: Checks, injector: Injector) -> None:
        self._target = target
        self._life = life
        self._checks = checks
        self._injector = injector

    def has_disk_space(self) -> bool:
        return not self._injector.is_open(FaultKind.STORE_FULL)

    def __getattr__(self, name: str) -> Any:  # whatever the target has
        found = getattr(self._target, name)
        if name not in _WATCHED:
            return found

        def written(*args: Any, **named: Any) -> Any:
            answer = found(*args, **named)
            self._checks.wrote(self._life, name, args)
            return answer

        return written


class FaultyAccess:
    """Implements StoreAccess on virtual time, over a store that is slow, locked or full where the schedule says so."""

    is_inline = False
    is_shared = False

    def __init__(self, store: StateStore, life: Life, checks: Checks, injector: Injector, clock: LoopClock) -> None:
        self._store = cast("StateStore", WatchedStore(store, life, checks, injector))
        self._life = life
        self._checks = checks
        self._injector = injector
        self._clock = clock
        self.owner = store.owner

    def call(self, work: Callable[[StateStore], T]) -> T:
        """Run a call at once."""
        return work(self._store)

    async def write(self, work: Callable[[StateStore], T]) -> T:
        """Run a call that writes."""
        strikes = self._injector.strikes
        await self._clock.sleep(_SLOW_STORE_S if strikes(FaultKind.STORE_SLOW) else _WRITE_S)
        self._life.step(is_before=True)
        if strikes(FaultKind.STORE_LOCKED):
            await self._clock.sleep(_BUSY_S)
            raise LockHeldError("state.db stayed locked")
        if strikes(FaultKind.STORE_FULL):
            raise DiskFullError("state.db: disk full")
        answer = work(self._store)
        self._checks.committed(self._life)
        self._life.step(is_before=False)
        return answer

    async def read(self, work: Callable[[StateStore], T]) -> T:
        """Run a call that only reads."""
        await self._clock.sleep(_SLOW_STORE_S if self._injector.strikes(FaultKind.STORE_SLOW) else _READ_S)
        self._life.step(is_before=True)
        return work(self._store)


class LifeProvider:
    """Implements Provider for one life: what the process hears is the cloud's, as long as it lives."""

    name = "fault"

    def __init__(self, cloud: TortureCloud, life: Life, checks: Checks, clock: LoopClock) -> None:
        self._cloud = cloud
        self._life = life
        self._checks = checks
        self._clock = clock
        self.pace = cloud.pace

    @property
    def capabilities(self) -> ProviderCapabilities:
        """What the cloud can do."""
        known = self._cloud.capabilities
        return replace(known, events=self, shared=LifeShared(self) if known.shared is not None else None)

    async def create(self, requests: tuple[NodeRequest, ...], *, resolve_secrets: Any) -> tuple[CreateResult, ...]:
        """Order nodes."""
        self._begin("create")
        self._checks.ordering(self._life, requests)
        try:
            results = await self._cloud.create(requests, resolve_secrets=resolve_secrets)
        except ThrottledError as exc:
            self._throttled("create", exc)
            raise
        self._life.step(is_before=False)
        for request, result in zip(requests, results, strict=True):
            if isinstance(result.error, ThrottledError):
                self._throttled("create", result.error)
            elif result.error is not None:
                self._checks.refused(self._life, request, result.error)
        return results

    async def list_nodes(self, **named: Any) -> Any:
        """Return the fleet's nodes."""
        return await self._called("list_nodes", **named)

    async def describe(self, token: str, **named: Any) -> Node | None:
        """Return an order's node."""
        return cast("Node | None", await self._called("describe", token, **named))

    async def stop(self, node_id: str, *, grace_s: float) -> None:
        """Ask a node to end."""
        self._checks.stop_called(self._life, node_id)
        await self._called("stop", node_id, grace_s=grace_s)

    async def offerings(self) -> Any:
        """Return what is sold."""
        return await self._called("offerings")

    async def listen_addresses(self, count: int, **named: Any) -> Any:
        """Return where engines may listen."""
        return await self._called("listen_addresses", count, **named)

    async def watch(self, **named: Any) -> AsyncIterator[Node]:
        """Yield nodes as they change."""
        async for node in self._cloud.watch(**named):
            self._life.step(is_before=True)
            yield node

    def needed(self, **named: Any) -> tuple[SharedResource, ...]:
        """Return what the fleet's nodes stand on."""
        return self._cloud.shared.needed(**named)

    async def change_shared(self, call: str, resource: SharedResource) -> None:
        """Have what nodes share made, or removed."""
        self._begin(call)
        self._checks.wide.changing_shared(self._life, call, resource)
        try:
            await getattr(self._cloud.shared, call)(resource)
        except ThrottledError as exc:
            self._throttled(call, exc)
            raise
        self._life.step(is_before=False)

    async def _called(self, call: str, *args: Any, **named: Any) -> Any:
        self._begin(call)
        try:
            answer = await getattr(self._cloud, call)(*args, **named)
        except ThrottledError as exc:
            self._throttled(call, exc)
            raise
        self._life.step(is_before=False)
        return answer

    def _begin(self, call: str) -> None:
        self._life.step(is_before=True)
        self._checks.calling(self._life, call)

    def _throttled(self, call: str, error: ThrottledError) -> None:
        again_s = self._clock.monotonic_s() + error.retry_after_s
        self._life.not_before_s[call] = max(self._life.not_before_s.get(call, 0.0), again_s)


class LifeShared:
    """Implements SharedResources for one life."""

    def __init__(self, provider: LifeProvider) -> None:
        self._provider = provider

    def needed(self, **named: Any) -> tuple[SharedResource, ...]:
        """Return what the fleet's nodes stand on."""
        return self._provider.needed(**named)

    async def prepare(self, resource: SharedResource) -> None:
        """Have it made."""
        await self._provider.change_shared("prepare", resource)

    async def teardown(self, resource: SharedResource) -> None:
        """Have it removed."""
        await self._provider.change_shared("teardown", resource)


class LifeBorder:
    """Stands before gateway or engines for one life: every call is a step of it."""

    def __init__(self, target: object, life: Life) -> None:
        self._target = target
        self._life = life

    def __getattr__(self, name: str) -> Any:  # whatever the target has
        found = getattr(self._target, name)
        if name in ("stall", "is_alive", "is_beating", "lost_s", "watch", "release_port", "answers"):
            return found
        if name == "start":
            return self._started(found)
        if name == "numbered":
            return lambda number: LifeBorder(found(number), self._life)

        async def called(*args: object, **named: object) -> object:
            self._life.step(is_before=True)
            answer = await found(*args, **named)
            self._life.step(is_before=False)
            return answer

        return called

    def _started(self, start: Callable[..., int]) -> Callable[..., int]:
        def started(*args: object) -> int:
            self._life.step(is_before=True)
            return start(*args)

        return started


def is_fenced(error: BaseException | None) -> bool:
    """Whether a controller ended because another has the fleet."""
    return isinstance(error, FencedError)


def as_provider(provider: LifeProvider) -> Provider:
    """Return it as what it implements."""
    return cast("Provider", provider)

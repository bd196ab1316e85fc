"""Shared resources of a cloud at its worst: cut-off calls have their effect late, and the wrong order is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.errors import AmbiguousOutcomeError, ProviderError
from fleetctl.testing.samples import shared_resources

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from fleetctl.clock import Clock
    from fleetctl.model.node import Node
    from fleetctl.model.shared import SharedResource


class FaultyShared:
    """Implements SharedResources: each of `kinds` stands on those before it, and nodes stand on all."""

    def __init__(  # noqa: PLR0913  # what it knows of its cloud, each named
        self,
        clock: Clock,
        dice: random.Random,
        kinds: tuple[str, ...],
        *,
        cut: Callable[[], float],
        settles_s: Callable[[], float],
        enter: Callable[[str, float], Awaitable[None]],
        living: Callable[[], list[Node]],
    ) -> None:
        self.kinds = kinds
        self.call_s = 5.0  # until a call answers
        self.refusals: list[str] = []  # of calls in the wrong order
        self.stuck: set[str] = set()  # kinds that can be neither prepared nor torn down
        self._clock = clock
        self._dice = dice
        self._cut = cut
        self._settles_s = settles_s
        self._enter = enter
        self._living = living
        self._changes: list[tuple[datetime, SharedResource, bool]] = []  # from when on it is there, or is not

    def there(self) -> list[str]:
        """Return the kinds that are there now, in the order of preparing."""
        now, last = self._clock.now(), dict[str, bool]()
        for at, resource, is_there in sorted(self._changes, key=lambda change: change[0]):
            if at <= now:
                last[resource.kind] = is_there
        return [kind for kind in self.kinds if last.get(kind)]

    def check_create(self) -> None:
        """Raise ProviderError unless everything is there that nodes need."""
        if missing := [kind for kind in self.kinds if kind not in self.there()]:
            raise self._refused(f"no node without {', '.join(missing)}")

    def needed(self, *, owner: str, fleet: str) -> tuple[SharedResource, ...]:
        """Return one resource of each kind."""
        return shared_resources(self.kinds, owner=owner, fleet=fleet)

    async def prepare(self, resource: SharedResource) -> None:
        """Have it there; what it stands on must be."""
        await self._enter("prepare", self.call_s)
        self._check_stuck(resource)
        before = self.kinds[: self.kinds.index(resource.kind)]
        if missing := [kind for kind in before if kind not in self.there()]:
            raise self._refused(f"{resource.kind} cannot be prepared without {missing[0]}")
        await self._take(resource, is_there=True)

    async def teardown(self, resource: SharedResource) -> None:
        """Have it gone; what stands on it must be gone."""
        await self._enter("teardown", self.call_s)
        self._check_stuck(resource)
        after = self.kinds[self.kinds.index(resource.kind) + 1 :]
        users = [kind for kind in after if kind in self.there() and kind not in self.stuck]
        users += [node.id for node in self._living() if node.fleet == resource.fleet]
        if users:
            raise self._refused(f"{resource.kind} is in use by {users[0]}")
        await self._take(resource, is_there=False)

    async def _take(self, resource: SharedResource, *, is_there: bool) -> None:
        """Have the effect at once; or cut the answer off, and have it late or never."""
        now = self._clock.now()
        if self._dice.random() >= self._cut():
            self._changes.append((now, resource, is_there))
            return
        if self._dice.random() < 0.5:
            late_s = self._dice.uniform(0.0, self._settles_s())
            self._changes.append((now + timedelta(seconds=late_s), resource, is_there))
        raise AmbiguousOutcomeError(f"{resource.kind}: the connection was cut")

    def _check_stuck(self, resource: SharedResource) -> None:
        if resource.kind in self.stuck:
            raise ProviderError(f"{resource.kind} is in use", hint="see what else uses it")

    def _refused(self, message: str) -> ProviderError:
        self.refusals.append(message)
        return ProviderError(message)

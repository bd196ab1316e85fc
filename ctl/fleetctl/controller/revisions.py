"""Gives each tick the revision that a rollout comes from, read once, and the one that it goes to where it begins."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.rollout.in_force import restored, stable_number
from fleetctl.errors import StateError
from fleetctl.model.rollout import Revision
from fleetctl.ports.records import Collection, revision_key

if TYPE_CHECKING:
    from fleetctl.controller.world import World
    from fleetctl.model.desired import Desired
    from fleetctl.model.rollout import Rollout

_READ_S = 2.0


class Revisions:
    """Keeps the last revision that was complete."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stable: Revision | None = None

    async def attach(self, desired: Desired, rollout: Rollout | None) -> Desired:
        """Return the fleet's record with what its rollout comes from and goes to. Raises StateError where that cannot be read."""
        if rollout is not None and rollout.revision != desired.revision:
            desired = replace(desired, newest=await self._read(desired.revision))
        number = stable_number(rollout, desired.revision)
        if number is None:
            return desired
        if self._stable is None or self._stable.number != number:
            self._stable = await self._read(number)
        return replace(desired, stable=self._stable)

    async def _read(self, number: int) -> Revision | None:
        fleet, key = self._world.fleet, revision_key(number)
        try:
            async with asyncio.timeout(_READ_S):
                found = await self._world.store.read(
                    lambda store: store.find_record(Collection.ROLLOUTS, key, fleet=fleet)
                )
        except TimeoutError as exc:
            raise StateError("the state does not answer, and says of no earlier revision") from exc
        return found.value_as(Revision) if found is not None else None

    def roll_back(self, failed: Desired, stable: Revision, *, over: int, why: str) -> None:
        """Put a revision in force again, unless another than `over` has taken its place."""
        now = self._world.clock.now()
        profile = restored(stable.profile, failed.profile)
        self._world.store.write(lambda store: store.put_fleet(profile, stable.plan, now=now, why=why, over=over))

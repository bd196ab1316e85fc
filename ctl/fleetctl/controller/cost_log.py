"""Keeps on record what the fleet costs, hour by hour."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.core.costs import accrued, first_hour, with_tokens
from fleetctl.errors import StateError
from fleetctl.model.costs import CostHour
from fleetctl.ports.records import Collection, StoredRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.controller.world import World
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation
    from fleetctl.model.replica import Replica
    from fleetctl.ports.store import StateStore

# A controller that is killed in between counts on from what is stored.
_STORE_INTERVAL_S = 15.0
_READ_S = 2.0


class CostLog:
    """Holds the hour that is being counted."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._hour: CostHour | None = None
        self._stored_s = 0.0

    async def note(
        self, desired: Desired, observation: Observation, replicas: Iterable[Replica], *, is_last: bool
    ) -> None:
        """Count up to this observation; what is counted is stored every quarter of a minute, and at the last."""
        if self._hour is None:
            try:
                async with asyncio.timeout(_READ_S):
                    kept = await self._world.store.read(partial(_newest, fleet=desired.fleet))
            except (TimeoutError, StateError):
                return  # asked again with the next tick: what it misses is counted then
            self._hour = kept or first_hour(observation.at)
        found = accrued(
            self._hour, replicas, head_usd_per_hour=desired.plan.head_usd_per_hour, now=observation.at
        )  # fmt: skip
        several = {each.number: each.snapshot for each in observation.gateways if each.snapshot is not None}
        read = several or ({1: observation.gateway} if observation.gateway is not None else {})
        for hour in found[:-1]:
            self._put(desired.fleet, hour)
        self._hour = with_tokens(found[-1], read)
        now_s = self._world.clock.monotonic_s()
        if is_last or len(found) > 1 or now_s - self._stored_s >= _STORE_INTERVAL_S:
            self._put(desired.fleet, self._hour)
            self._stored_s = now_s

    def _put(self, fleet: str, hour: CostHour) -> None:
        self._world.store.put_record(StoredRecord.of(Collection.COSTS, hour.key, hour, at=hour.start, fleet=fleet))


def _newest(store: StateStore, *, fleet: str) -> CostHour | None:
    kept = store.records(Collection.COSTS, fleet=fleet, limit=1)
    return kept[-1].value_as(CostHour) if kept else None

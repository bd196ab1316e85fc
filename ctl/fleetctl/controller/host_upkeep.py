"""Has the objects that a fleet was placed with made again where somebody has deleted them: a Service, a Deployment of gateways."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fleetctl.errors import FencedError, FleetctlError
from fleetctl.model.action import EntryKind
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.reason import ReasonCode
from fleetctl.model.subject import GATEWAY
from fleetctl.ports.placed_objects import PlacedObjects

if TYPE_CHECKING:
    from fleetctl.controller.journal import Journal
    from fleetctl.controller.provider_calls import ProviderCalls
    from fleetctl.controller.world import World

# A look is one call for each object.
_EVERY_S = 3.0
_OF_HOST = "host"  # whose warnings they are


class HostUpkeep:
    """Looks every three seconds; a fleet that goes down is left to whoever takes its objects away."""

    def __init__(self, world: World, *, calls: ProviderCalls, journal: Journal) -> None:
        self._world = world
        self._calls = calls
        self._journal = journal
        self._failure = ""
        host = world.gateway_host
        self.objects: PlacedObjects | None = host if isinstance(host, PlacedObjects) else None

    async def keep(self) -> None:
        """Look for ever, where the host has such objects; what cannot be mended is tried again with the next look."""
        while self.objects is not None:
            try:
                await self._look(self.objects)
            except FencedError:
                raise
            except FleetctlError as exc:
                if exc.message != self._failure:  # a right that is lacking stays so: the status says it all the while
                    self._journal.failed(GATEWAY, "restore", exc)
                self._failure = exc.message
            else:
                self._failure = ""
            self._calls.warned(_OF_HOST, self.objects.warnings())
            await self._world.clock.sleep(_EVERY_S)

    async def _look(self, objects: PlacedObjects) -> None:
        store = self._world.store
        desired = store.fleet()
        if desired is None or desired.phase is not DesiredPhase.UP or not await store.read(objects.read_place):
            return
        lacking = await asyncio.to_thread(objects.lacking)
        if not lacking:
            return
        # Whoever has lost the fleet meanwhile makes nothing more: its successor does, or somebody takes the fleet down.
        await store.verify_lease()
        reason = f"gone, and made again: {', '.join(lacking)}"
        await asyncio.to_thread(objects.restore, lacking)
        self._journal.note(EntryKind.GATEWAY, GATEWAY, "restore", ReasonCode.OBJECT_GONE, reason)

"""The screen's source and actions on a real fleet: operations, called from threads since they block on files."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fleetctl.operations import fleets, overrides, replicas
from fleetctl.views.overrides import format_override_change

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleetctl.model.ladder import LadderStep
    from fleetctl.model.status import FleetStatus
    from fleetctl.operations.fleets import Explanation
    from fleetctl.operations.overrides import OverrideChange
    from fleetctl.operations.site import Site


class LiveSource:
    """Implements StatusSource over a fleet's controller."""

    def __init__(self, site: Site, fleet: str) -> None:
        self._site = site
        self._fleet = fleet

    def watch(self) -> AsyncIterator[FleetStatus]:
        """Yield the controller's stream; stored ones while it is away."""
        return fleets.watch(self._site, self._fleet)

    async def explain(self, subject: str) -> Explanation:
        """Return the decisions on a lane or a replica. Raises FleetctlError."""
        return await asyncio.to_thread(fleets.why, self._site, self._fleet, subject)


class LiveActions:
    """Implements Actions as the CLI's own commands."""

    def __init__(self, site: Site, fleet: str) -> None:
        self._site = site
        self._fleet = fleet

    async def drain(self, replica_id: str, *, dry_run: bool) -> str:
        """Mark a replica to be drained. Raises FleetctlError."""
        found = await asyncio.to_thread(replicas.drain, self._site, self._fleet, replica_id, dry_run=dry_run)
        return f"{found.id} ({found.state}) {'would' if dry_run else 'will'} be drained"

    async def scale(self, lane: str, replicas: int | None, *, dry_run: bool, force: bool = False) -> str:
        """Set a lane's replicas. Raises FleetctlError."""
        found = await asyncio.to_thread(
            overrides.scale, self._site, self._fleet, lane, replicas, dry_run=dry_run, force=force
        )
        return _text(found, "replicas")

    async def shed(self, lane: str, step: LadderStep | None, *, dry_run: bool) -> str:
        """Pin a lane's step. Raises FleetctlError."""
        found = await asyncio.to_thread(overrides.shed, self._site, self._fleet, lane, step, dry_run=dry_run)
        return _text(found, "ladder step")


def _text(change: OverrideChange, what: str) -> str:
    return f"{change.lane}: {format_override_change(what, change.before, change.after)}"

"""What the screen needs: a stream of statuses, and commands. Operations give both; tests give their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleetctl.model.ladder import LadderStep
    from fleetctl.model.status import FleetStatus
    from fleetctl.operations.fleets import Explanation


class StatusSource(Protocol):
    """The source of the screen's values."""

    def watch(self) -> AsyncIterator[FleetStatus]:
        """Yield a status whenever there is a new one; end when the fleet is forgotten."""
        ...

    async def explain(self, subject: str) -> Explanation:
        """Return why a lane or a replica is as it is. Raises FleetctlError."""
        ...


class Actions(Protocol):
    """The commands of the screen. Each returns what was done, or with `dry_run` would be, as the CLI writes it.

    Raises FleetctlError.
    """

    async def drain(self, replica_id: str, *, dry_run: bool) -> str:
        """Take a replica out of rotation, let it finish, stop it."""
        ...

    async def scale(self, lane: str, replicas: int | None, *, dry_run: bool, force: bool = False) -> str:
        """Set a lane's replicas by hand; None gives it back to the controller."""
        ...

    async def shed(self, lane: str, step: LadderStep | None, *, dry_run: bool) -> str:
        """Pin a lane on a ladder step; None lets go."""
        ...

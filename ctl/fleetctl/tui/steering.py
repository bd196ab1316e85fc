"""What the writing keys do: say what will happen, ask, do it, tell what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError
from fleetctl.model.ladder import LadderStep
from fleetctl.tui.modals import AUTOMATIC, Ask, AskReplicas, AskStep

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from textual.app import App

    from fleetctl.model.status import LaneStatus, ReplicaStatus
    from fleetctl.tui.ports import Actions

_DRAIN_WORDS = (
    "Out of rotation at once; requests in flight finish first, then the node is stopped.",
    "The controller starts a replacement if the lane still wants it.",
)


class Steering:
    """Drives the questions, as workers of the app. A refusal is told with what to do about it."""

    def __init__(self, app: App[None], actions: Actions) -> None:
        self._app = app
        self._actions = actions

    async def drain(self, targets: tuple[ReplicaStatus, ...]) -> None:
        """Ask, then drain each."""
        names = ", ".join(replica.record.id for replica in targets)
        carried = sum(replica.in_flight for replica in targets)
        flying = f"{carried} request{'s are' if carried != 1 else ' is'} in flight there."
        if not await self._app.push_screen_wait(Ask(f"Drain {names}?", (*_DRAIN_WORDS, flying))):
            return
        for replica in targets:
            await self._tell(self._actions.drain(replica.record.id, dry_run=False))

    async def scale(self, lane: LaneStatus) -> None:
        """Ask for a number, show what it would change, then do it."""
        word = await self._app.push_screen_wait(AskReplicas(lane.name, lane.wanted))
        if word is None:
            return
        wanted = None if word == AUTOMATIC else int(word)
        would = await self._words(self._actions.scale(lane.name, wanted, dry_run=True))
        if would is None:
            return
        held = "It holds until the next `up`, or until it is set to auto."
        if await self._app.push_screen_wait(Ask(f"Scale {lane.name}?", (would, held))):
            await self._tell(self._actions.scale(lane.name, wanted, dry_run=False))

    async def shed(self, lane: LaneStatus) -> None:
        """Ask for a step, show what it would change, then do it."""
        word = await self._app.push_screen_wait(AskStep(lane.name, lane.step))
        if word is None:
            return
        step = None if word == AUTOMATIC else LadderStep(word)
        would = await self._words(self._actions.shed(lane.name, step, dry_run=True))
        if would is None:
            return
        held = "It holds until the next `up`, or until it is set to auto."
        if await self._app.push_screen_wait(Ask(f"Pin {lane.name}?", (would, held))):
            await self._tell(self._actions.shed(lane.name, step, dry_run=False))

    async def _tell(self, call: Awaitable[str]) -> None:
        words = await self._words(call)
        if words is not None:
            self._app.notify(words)

    async def _words(self, call: Awaitable[str]) -> str | None:
        try:
            return await call
        except FleetctlError as exc:
            self._app.notify(exc.hint or "", title=exc.message, severity="error", timeout=15)
            return None

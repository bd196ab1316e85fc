"""What the writing keys do: show what would change, ask, do it, show the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import DisruptionLimitError, FleetctlError
from fleetctl.model.ladder import LadderStep
from fleetctl.tui.modals import AUTOMATIC, ConfirmDialog, ReplicasDialog, StepDialog

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from textual.app import App

    from fleetctl.model.status import LaneStatus, ReplicaStatus
    from fleetctl.tui.ports import Actions

_DRAIN_CONSEQUENCES = (
    "Out of rotation at once; requests in flight finish first, then the node is stopped.",
    "The controller starts a replacement if the lane still wants it.",
)


class CommandDialogs:
    """Drives the questions, as workers of the app. A refusal is shown with its hint."""

    def __init__(self, app: App[None], actions: Actions) -> None:
        self._app = app
        self._actions = actions

    async def drain(self, targets: tuple[ReplicaStatus, ...]) -> None:
        """Ask, then drain each."""
        names = ", ".join(replica.record.id for replica in targets)
        carried = sum(replica.in_flight for replica in targets)
        flying = f"{carried} request{'s are' if carried != 1 else ' is'} in flight there."
        if not await self._app.push_screen_wait(ConfirmDialog(f"Drain {names}?", (*_DRAIN_CONSEQUENCES, flying))):
            return
        for replica in targets:
            await self._run(self._actions.drain(replica.record.id, dry_run=False))

    async def scale(self, lane: LaneStatus) -> None:
        """Ask for a number, show what it would change, then do it."""
        answer = await self._app.push_screen_wait(ReplicasDialog(lane.name, lane.wanted))
        if answer is None:
            return
        wanted = None if answer == AUTOMATIC else int(answer)
        limit = await self._limit(lane.name, wanted)
        would = await self._text_of(self._actions.scale(lane.name, wanted, dry_run=True, force=bool(limit)))
        if would is None:
            return
        lines = [f"At once: {limit}."] if limit else []
        lines.append("It holds until the next `up`, or until it is set to auto.")
        if await self._app.push_screen_wait(ConfirmDialog(f"Scale {lane.name}?", (would, *lines))):
            await self._run(self._actions.scale(lane.name, wanted, dry_run=False, force=bool(limit)))

    async def _limit(self, lane: str, wanted: int | None) -> str:
        """Return why more would go than should at once; empty where it would not, or is refused for another reason."""
        try:
            await self._actions.scale(lane, wanted, dry_run=True)
        except DisruptionLimitError as exc:
            return exc.message
        except FleetctlError:
            return ""  # shown by whoever asks next
        return ""

    async def shed(self, lane: LaneStatus) -> None:
        """Ask for a step, show what it would change, then do it."""
        answer = await self._app.push_screen_wait(StepDialog(lane.name, lane.step))
        if answer is None:
            return
        step = None if answer == AUTOMATIC else LadderStep(answer)
        would = await self._text_of(self._actions.shed(lane.name, step, dry_run=True))
        if would is None:
            return
        held = "It holds until the next `up`, or until it is set to auto."
        if await self._app.push_screen_wait(ConfirmDialog(f"Pin {lane.name}?", (would, held))):
            await self._run(self._actions.shed(lane.name, step, dry_run=False))

    async def _run(self, call: Awaitable[str]) -> None:
        text = await self._text_of(call)
        if text is not None:
            self._app.notify(text)

    async def _text_of(self, call: Awaitable[str]) -> str | None:
        try:
            return await call
        except FleetctlError as exc:
            self._app.notify(exc.hint or "", title=exc.message, severity="error", timeout=15)
            return None

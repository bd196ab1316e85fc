"""A screen to try keys on: statuses are fed by hand, actions are recorded, time stands still."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from textual.pilot import Pilot

from fleetctl.errors import BudgetExceededError, DisruptionLimitError
from fleetctl.model.subject import subjects_named
from fleetctl.operations.fleets import Explanation
from fleetctl.testing.clocks import ManualClock
from fleetctl.testing.samples import EPOCH, lane_plan
from fleetctl.tui.app import FleetApp
from tests.tui.fleets import busy, decisions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleetctl.model.ladder import LadderStep
    from fleetctl.model.status import FleetStatus

_TURNS_MAX = 500


class FedSource:
    """Implements StatusSource: what is fed is what is seen; None ends it."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[FleetStatus | None] = asyncio.Queue()

    def feed(self, *statuses: FleetStatus | None) -> None:
        for status in statuses:
            self._queue.put_nowait(status)

    async def watch(self) -> AsyncIterator[FleetStatus]:
        while (status := await self._queue.get()) is not None:
            yield status

    async def explain(self, subject: str) -> Explanation:
        about = subjects_named(subject)[0]
        entries = tuple(e for e in decisions() if e.subject.path == subject)
        return Explanation(
            fleet="demo", subject=about, now=f"{about} is as it should be", lane=None, replica=None,
            plan=lane_plan("short"), entries=entries,
        )  # fmt: skip


@dataclass
class RecordedActions:
    """Implements Actions: remembers what was done, and refuses more than eight replicas as the real ones would."""

    done: list[tuple[str, str, object]] = field(default_factory=list)

    async def drain(self, replica_id: str, *, dry_run: bool) -> str:
        return self._note("drain", replica_id, None, dry_run=dry_run)

    async def scale(self, lane: str, replicas: int | None, *, dry_run: bool, force: bool = False) -> str:
        if replicas is not None and replicas > 8:
            raise BudgetExceededError("9 nodes would be over the cap of 8", hint="raise capacity.max_nodes")
        if replicas == 0 and not force:
            raise DisruptionLimitError("long would lose 6 of 6 replicas within a minute", hint="pass --force")
        return self._note("scale", lane, replicas, dry_run=dry_run)

    async def shed(self, lane: str, step: LadderStep | None, *, dry_run: bool) -> str:
        return self._note("shed", lane, str(step) if step is not None else None, dry_run=dry_run)

    def _note(self, what: str, subject: str, value: object, *, dry_run: bool) -> str:
        if not dry_run:
            self.done.append((what, subject, value))
        return f"{subject}: {what} {value}"


@dataclass
class ScreenRig:
    """Everything a test may touch."""

    app: FleetApp
    pilot: Pilot[None]
    source: FedSource
    actions: RecordedActions
    clock: ManualClock
    _fed: int = 0

    async def press(self, *keys: str) -> None:
        # One by one, as a person does who looks first: what a key opens is there before the next is struck.
        for key in keys:
            await self.pilot.press(key)
            await self.settle()

    async def feed(self, *statuses: FleetStatus | None, is_news: bool = True) -> None:
        """Feed statuses; news are a little later than all before, whenever they were made."""
        for status in statuses:
            if status is not None and is_news:
                self._fed += 1
                self.source.feed(replace(status, at=status.at + timedelta(microseconds=self._fed)))
            else:
                self.source.feed(status)
        await self.settle()

    async def settle(self) -> None:
        """Let everything the last key or status set off come to rest: on a busy machine that takes more turns."""
        calm = 0
        for _ in range(_TURNS_MAX):
            await self.pilot.pause()
            # Once the action is over its last words are still to be drawn.
            calm = 0 if self._is_busy() else calm + 1
            if calm > 2:
                return
        raise AssertionError("the screen does not come to rest")

    def _is_busy(self) -> bool:
        """Whether an action is under way; one that has asked something waits for the answer, and is at rest."""
        busy = [w for w in self.app.workers if w.group in ("command", "explain") and not w.is_finished]
        return bool(busy) and len(self.app.screen_stack) == 1

    async def pass_time(self, seconds: float) -> None:
        self.clock.jump(seconds)
        self.app._draw()
        await self.settle()

    @property
    def modal(self) -> str:
        """The name of what is open above the screen, or nothing."""
        top = self.app.screen
        return type(top).__name__ if len(self.app.screen_stack) > 1 else ""

    def text(self) -> str:
        """Return what is on the screen as plain lines."""
        width = self.app.size.width
        lines = ["".join(segment.text for segment in strip) for strip in self.app.screen._compositor.render_strips()]
        return "\n".join(line.ljust(width).rstrip() for line in lines)

    def picture(self) -> str:
        return self.app.export_screenshot(title="fleetctl top", simplify=True)


@asynccontextmanager
async def screen_rig(
    *statuses: FleetStatus, size: tuple[int, int] = (120, 40), is_readonly: bool = False, is_ascii: bool = False
) -> AsyncIterator[ScreenRig]:
    source, actions, clock = FedSource(), RecordedActions(), ManualClock(EPOCH)
    app = FleetApp(source, actions, is_readonly=is_readonly, is_ascii=is_ascii, clock=clock, zone=UTC)
    async with app.run_test(size=size, notifications=True) as pilot:
        rig = ScreenRig(app=app, pilot=pilot, source=source, actions=actions, clock=clock)
        await rig.feed(*(statuses or (busy(),)))
        yield rig

"""The screen: a worker takes in statuses, handlers keep state, widgets show values they are given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.message import Message
from textual.widgets import Footer, Input

from fleetctl.clock import SYSTEM_CLOCK, Clock
from fleetctl.errors import FleetctlError
from fleetctl.model.status import FleetStatus
from fleetctl.tui.command_dialogs import CommandDialogs
from fleetctl.tui.explain_view import explanation_lines
from fleetctl.tui.grid import Grid
from fleetctl.tui.header_view import Freshness
from fleetctl.tui.keys import BINDINGS, OPENED, WRITING, help_lines
from fleetctl.tui.modals import TextDialog
from fleetctl.tui.panels import FleetHeader, ScreenState, fill, lane_at, subject_at
from fleetctl.tui.stream_health import StreamHealth
from fleetctl.tui.tones import TONE_CSS
from fleetctl.tui.trend_view import Trend
from fleetctl.views.canvas import Canvas, glyphs
from fleetctl.views.table import Layout, layout_of

if TYPE_CHECKING:
    from datetime import tzinfo
    from pathlib import PurePath

    from textual import events
    from textual.app import ComposeResult

    from fleetctl.model.status import LaneStatus, ReplicaStatus
    from fleetctl.tui.ports import Actions, StatusSource

_REDRAW_S = 0.5
_AGAIN_S = 1.0  # between two looks for a fleet that is gone
_GONE = "the fleet is gone; it is shown again once it is up: fleetctl up PROFILE"
_TALL = 36  # lines from which on Trend has room under Replicas
_TALLER = 50  # and tiers and workflows, where there are some


class FleetApp(App[None]):
    """Shows one fleet live, and changes it unless `is_readonly`."""

    ENABLE_COMMAND_PALETTE = False
    CSS_PATH: ClassVar[str | PurePath | list[str | PurePath] | None] = "app.tcss"
    DEFAULT_CSS = TONE_CSS
    BINDINGS: ClassVar[list[BindingType]] = [*BINDINGS]

    @dataclass
    class StatusArrived(Message):
        """The stream gave a status."""

        status: FleetStatus

    @dataclass
    class StreamEnded(Message):
        """The stream is over; `fault` is empty when the fleet was simply forgotten."""

        fault: str

    def __init__(
        self,
        source: StatusSource,
        actions: Actions,
        *,
        is_readonly: bool = False,
        is_ascii: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        zone: tzinfo | None = None,
    ) -> None:
        super().__init__()
        self.is_readonly = is_readonly
        self._source = source
        self._clock = clock
        self._zone = zone
        self._is_ascii = is_ascii
        self._marks = glyphs(is_ascii=is_ascii)
        self._latest: FleetStatus | None = None
        self._paused: FleetStatus | None = None  # what is shown instead, while paused
        self._stream_health = StreamHealth()
        self._ended = ""
        self._is_repeated = False
        self._trend = Trend()
        self._dialogs = CommandDialogs(self, actions)
        self._filtered = ""  # the panel the filter line is open for

    def compose(self) -> ComposeResult:
        """Lay out the panels; their places depend on the width, see app.tcss."""
        yield FleetHeader()
        yield Grid("lanes", title="1 Lanes", marks=self._marks)
        with Container(id="lower"):
            yield Grid("replicas", title="2 Replicas", marks=self._marks, has_marks=True)
            with Vertical(id="journal"):
                yield Grid("trend", title="3 Trend", marks=self._marks)
                yield Grid("tiers", title="5 Tiers, last 5m", marks=self._marks)
                yield Grid("workflows", title="6 Workflows, last hour", marks=self._marks)
                yield Grid("decisions", title="4 Decisions", marks=self._marks, follows_tail=True)
        yield Input(id="pattern", placeholder="keep rows with this; !this hides them", compact=True)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Begin to listen."""
        self.set_class(self._is_ascii, "-ascii")
        self.set_interval(_REDRAW_S, self._draw)
        self.query_one("#replicas").focus()
        self._listen()

    @work(exclusive=True, group="listen")
    async def _listen(self) -> None:
        while True:  # a fleet that is gone may be brought up again
            fault = ""
            try:
                async for status in self._source.watch():
                    self.post_message(self.StatusArrived(status))
            except FleetctlError as exc:
                fault = exc.message
            self.post_message(self.StreamEnded(fault))
            await self._clock.sleep(_AGAIN_S)

    @on(StatusArrived)
    def _keep(self, message: StatusArrived) -> None:
        earlier, self._latest = self._latest, message.status
        if self._ended:
            self._ended = ""
            self.clear_notifications()
        # A controller that cannot decide repeats what it saw last: it is heard, and nothing is news.
        self._is_repeated = earlier is not None and earlier.at == message.status.at
        if message.status.controller_alive and not self._is_repeated:
            self._stream_health.heard(self._clock.monotonic_s())
            self._trend.add(message.status)
        self._draw()

    @on(StreamEnded)
    def _end(self, message: StreamEnded) -> None:
        ended = message.fault or _GONE
        if ended == self._ended:
            return
        self._ended = ended
        self.notify(self._ended, severity="error" if message.fault else "information", timeout=3600)
        self._draw()

    def on_resize(self, event: events.Resize) -> None:
        """Choose the layout."""
        layout = layout_of(event.size.width)
        for known in Layout:
            self.screen_stack[0].set_class(known is layout, f"-{known.name.lower()}")
        self.screen_stack[0].set_class(event.size.height >= _TALL, "-tall")
        self.screen_stack[0].set_class(event.size.height >= _TALLER, "-taller")
        self.call_after_refresh(self._draw)

    # What is shown

    @property
    def shown(self) -> FleetStatus | None:
        """The status on the screen: the latest, or while paused the one it was paused on."""
        return self._paused or self._latest

    def grid(self, name: str) -> Grid:
        """Return a panel's grid."""
        return self.screen_stack[0].query_one(f"#{name}", Grid)

    @property
    def focused_grid(self) -> Grid:
        """The panel that has the focus, or that the filter line is open for."""
        if self._filtered:
            return self.grid(self._filtered)
        focused = self.screen_stack[0].focused
        return focused if isinstance(focused, Grid) else self.grid("replicas")

    def _freshness(self) -> Freshness:
        if self._paused is not None:
            return Freshness(is_live=False, is_paused=True)
        is_cut = self._latest is None or not self._latest.controller_alive or bool(self._ended)
        found = self._stream_health.freshness(self._clock.monotonic_s(), is_cut=is_cut)
        condition = self._latest.store_condition if self._latest is not None and self._is_repeated else None
        return replace(found, is_gone=self._ended == _GONE, reason=self._ended or str(condition or ""))

    def _draw(self) -> None:
        status = self.shown
        if status is None or not self.is_running:
            return
        state = ScreenState(
            status=status,
            canvas=Canvas(width=self.size.width, marks=self._marks, zone=self._zone),
            now=status.at if self._paused is not None else self._clock.now(),
            freshness=self._freshness(),
            is_readonly=self.is_readonly,
        )
        fill(self.screen_stack[0], state, self._trend)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Take the writing keys away from a read-only screen."""
        del parameters
        return not (self.is_readonly and action in WRITING)

    def action_panel(self, name: str) -> None:
        """Focus a panel; one that is not on the screen by itself is opened, or closed again."""
        grid = self.grid(name)
        if name in OPENED:
            is_shown = bool(grid.display) and grid.has_focus
            grid.set_class(not is_shown, "-open")
            if is_shown:
                self.grid("replicas").focus()
                return
        grid.focus()

    def action_help(self) -> None:
        """List every key that works now."""
        bindings = [b for b in (*self.BINDINGS, *Grid.BINDINGS) if isinstance(b, Binding)]
        self.push_screen(TextDialog("Keys", help_lines(bindings, is_readonly=self.is_readonly)))

    def action_pause(self) -> None:
        """Freeze the screen, or let it run on."""
        self._paused = None if self._paused is not None else self._latest
        self._draw()

    def action_mark(self) -> None:
        """Mark the replica under the cursor."""
        self.focused_grid.toggle_mark()
        self._draw()

    def action_clear(self) -> None:
        """Forget the focused panel's filter and marks."""
        grid = self.focused_grid
        grid.filter("")
        grid.marked.clear()
        grid.focus()
        self._draw()

    def action_filter(self) -> None:
        """Open the filter line for the focused panel."""
        grid, line = self.focused_grid, self.query_one("#pattern", Input)
        self._filtered = grid.id or ""
        line.value = grid.pattern
        line.add_class("-open")
        line.focus()

    @on(Input.Changed, "#pattern")
    def _filter(self, event: Input.Changed) -> None:
        if self._filtered:
            self.grid(self._filtered).filter(event.value)
            self._draw()

    @on(Input.Submitted, "#pattern")
    @on(Input.Blurred, "#pattern")
    def _close_filter(self) -> None:
        self.query_one("#pattern", Input).remove_class("-open")
        if self._filtered:
            name, self._filtered = self._filtered, ""
            self.grid(name).focus()

    def action_drain(self) -> None:
        """Drain the marked replicas, else the one under the cursor."""
        grid = self.grid("replicas")
        names = grid.marked or ({grid.cursor_key} if grid.has_focus else set())
        targets = tuple(r for r in self._replicas() if r.record.id in names and r.record.state.is_live)
        if not targets:
            self.notify("Put the cursor on a live replica (2), or mark some with space.", severity="warning")
            return
        grid.marked.clear()
        self._draw()  # time may stand still until the next status: the marks go now
        self.run_worker(self._dialogs.drain(targets), group="command", exclusive=True)

    def action_scale(self) -> None:
        """Scale the lane under the cursor."""
        lane = self._lane_at_cursor()
        if lane is not None:
            self.run_worker(self._dialogs.scale(lane), group="command", exclusive=True)

    def action_shed(self) -> None:
        """Pin the lane under the cursor on a ladder step."""
        lane = self._lane_at_cursor()
        if lane is not None:
            self.run_worker(self._dialogs.shed(lane), group="command", exclusive=True)

    @work(exclusive=True, group="explain")
    async def action_explain(self) -> None:
        """Show why the cursor's row is as it is."""
        subject = subject_at(self.shown, self.focused_grid) if self.shown is not None else None
        if subject is None:
            return
        try:
            found = await self._source.explain(subject.path)
        except FleetctlError as exc:
            self.notify(exc.hint, title=exc.message, severity="error")
            return
        self.push_screen(TextDialog(f"Why {subject}", explanation_lines(found, now=self._clock.now(), zone=self._zone)))

    def _replicas(self) -> tuple[ReplicaStatus, ...]:
        return self.shown.replicas if self.shown is not None else ()

    def _lane_at_cursor(self) -> LaneStatus | None:
        found = lane_at(self.shown, self.focused_grid) if self.shown is not None else None
        if found is None:
            self.notify("Put the cursor on a lane (1) or a replica (2).", severity="warning")
        return found

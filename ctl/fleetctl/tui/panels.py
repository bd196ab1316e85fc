"""Fills the screen's panels with one status of a fleet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.widgets import Static

from fleetctl.model.status import FleetStatus
from fleetctl.model.subject import Subject
from fleetctl.tui.grid import Grid
from fleetctl.tui.header_view import Freshness, header_lines
from fleetctl.tui.tones import TONE_CLASSES, to_text, tone_styles
from fleetctl.views.canvas import Canvas
from fleetctl.views.decisions import DECISIONS_LIVE, decisions_table
from fleetctl.views.lanes import LANES_LIVE, lanes_table
from fleetctl.views.replicas import REPLICAS_LIVE, ended_beyond, replicas_table
from fleetctl.views.tiers import live_tier_table
from fleetctl.views.workflows import live_workflow_table

if TYPE_CHECKING:
    from textual.screen import Screen

    from fleetctl.model.status import LaneStatus
    from fleetctl.tui.trend_view import Trend
    from fleetctl.views.table import Span

_FRAME_LINES = 3  # of a panel: heading and borders
_LANES_HEIGHT_MAX = 12


class FleetHeader(Static):
    """The two lines above the panels."""

    COMPONENT_CLASSES: ClassVar[set[str]] = TONE_CLASSES

    def __init__(self) -> None:
        super().__init__(id="head")
        self._lines: tuple[tuple[Span, ...], ...] = ()

    def show(self, lines: tuple[tuple[Span, ...], ...]) -> None:
        """Replace the lines, if they differ."""
        if lines != self._lines:
            self._lines = lines
            styles = tone_styles(self)
            self.update(Text("\n", no_wrap=True, overflow="ellipsis").join(to_text(spans, styles) for spans in lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenState:
    """What is shown: a status, and how it is to be looked at."""

    status: FleetStatus
    canvas: Canvas
    now: datetime
    freshness: Freshness
    is_readonly: bool

    @property
    def is_stale(self) -> bool:
        """Whether its figures are too old to show."""
        return not self.freshness.is_live and not self.freshness.is_paused


def fill(screen: Screen[None], state: ScreenState, trend: Trend) -> None:
    """Show the status in every panel."""
    status, canvas, is_stale = state.status, state.canvas, state.is_stale
    head = screen.query_one("#head", FleetHeader)
    narrow = canvas.narrowed(2)
    head.show(header_lines(status, narrow, now=state.now, freshness=state.freshness, is_readonly=state.is_readonly))
    height = min(len(status.lanes) + _FRAME_LINES, _LANES_HEIGHT_MAX)
    lanes, trends = screen.query_one("#lanes", Grid), screen.query_one("#trend", Grid)
    lanes.styles.height = trends.styles.height = height
    lanes.show(lanes_table(status, canvas, LANES_LIVE, is_stale=is_stale), empty="no lanes")
    trends.show(trend.table(status, canvas, is_stale=is_stale), empty="no lanes")
    _fill_optional(screen, state)
    replicas = replicas_table(status, canvas, REPLICAS_LIVE, now=state.now, is_stale=is_stale)
    beyond = ended_beyond(status, now=state.now)
    more = f"{beyond} more ended" if beyond else ""
    screen.query_one("#replicas", Grid).show(replicas, empty="no replicas", more=more)
    decisions = decisions_table(status.decisions, DECISIONS_LIVE, time=canvas.clock_time)
    screen.query_one("#decisions", Grid).show(decisions, empty="nothing decided yet")


def _fill_optional(screen: Screen[None], state: ScreenState) -> None:
    """Show the panels of what only some profiles have; on the tallest screens they are there by themselves."""
    status, is_stale, layout = state.status, state.is_stale, state.canvas.layout
    lanes = [(lane.name, lane.traffic.tiers) for lane in status.lanes if lane.traffic is not None]
    found = {
        "tiers": (live_tier_table(lanes, is_stale=is_stale), any(tiers for _, tiers in lanes)),
        "workflows": (live_workflow_table(status.workflows, is_stale=is_stale), status.workflows is not None),
    }
    for name, (table, has_any) in found.items():
        grid = screen.query_one(f"#{name}", Grid)
        grid.set_class(has_any, "-some")
        grid.styles.height = min(max(1, len(table.rows)) + _FRAME_LINES, _LANES_HEIGHT_MAX)
        grid.show(table.within(layout), empty="no current figures" if has_any else f"the profile declares no {name}")


def subject_at(status: FleetStatus, grid: Grid) -> Subject | None:
    """Return the lane or replica that the grid's cursor is on; a decision's is its subject."""
    if grid.id == "decisions":
        return next((entry.subject for entry in status.decisions if str(entry.seq) == grid.cursor_key), None)
    if not grid.cursor_key or grid.id == "workflows":
        return None
    if grid.id == "tiers":
        return Subject.lane(grid.cursor_key.partition("/")[0])
    return Subject.replica(grid.cursor_key) if grid.id == "replicas" else Subject.lane(grid.cursor_key)


def lane_at(status: FleetStatus, grid: Grid) -> LaneStatus | None:
    """Return the lane the cursor is on, or the lane of the replica it is on."""
    subject = subject_at(status, grid)
    of_replica = (Subject.lane(r.record.lane) for r in status.replicas if Subject.replica(r.record.id) == subject)
    lane = next(of_replica, subject)
    return next((each for each in status.lanes if Subject.lane(each.name) == lane), None)

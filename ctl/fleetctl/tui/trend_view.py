"""The Trend panel as a table: what the screen has seen since it was opened, lane by lane."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from fleetctl.core.lane_figures import lane_quantiles
from fleetctl.model.slo import Metric, Quantiles, Validity
from fleetctl.tui.cells import Cell, Column, Layout, Row, Table, Tone, cell
from fleetctl.tui.glyphs import Canvas, ratio_tone, sparkline
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.model.status import FleetStatus, LaneStatus

_KEPT = 240  # statuses; four minutes at one a second
_TEN_S = 10.0
_WIDTH = {Layout.COMPACT: 18, Layout.NORMAL: 36, Layout.WIDE: 24}

_COLUMNS = (
    Column(title="LANE"),
    Column(title="TTFT P99, full height = SLO"),
    Column(title="NOW", is_right=True),
    Column(title="RPS in"),
    Column(title="NOW", is_right=True),
)


class Trend:
    """Remembers each lane's last figures. One value a status; NaN-free, for a lane without samples adds 0."""

    def __init__(self) -> None:
        self._ttft_s: dict[str, deque[float]] = {}
        self._rps: dict[str, deque[float]] = {}

    def add(self, status: FleetStatus) -> None:
        """Take in one live status."""
        for lane in status.lanes:
            window = lane.traffic.window(_TEN_S) if lane.traffic else None
            figures = lane_quantiles(lane, Metric.TTFT)
            self._ttft_s.setdefault(lane.name, deque(maxlen=_KEPT)).append(figures.p99_s if figures.count else 0.0)
            rps = window.offered / window.seconds if window else 0.0
            self._rps.setdefault(lane.name, deque(maxlen=_KEPT)).append(rps)

    def table(self, status: FleetStatus, canvas: Canvas, *, is_stale: bool) -> Table:
        """Return one row a lane."""
        return Table(columns=_COLUMNS, rows=tuple(self._row(lane, canvas, is_stale=is_stale) for lane in status.lanes))

    def _row(self, lane: LaneStatus, canvas: Canvas, *, is_stale: bool) -> Row:
        width, marks = _WIDTH[canvas.layout], canvas.marks
        ttft_s, rps = tuple(self._ttft_s.get(lane.name, ())), tuple(self._rps.get(lane.name, ()))
        target = lane.slo.strictest(Metric.TTFT)
        limit_s = target.limit_s if target else 0.0
        figures = Quantiles() if is_stale else lane_quantiles(lane, Metric.TTFT)
        tone = ratio_tone(figures.p99_s / limit_s) if limit_s and figures.validity is Validity.OK else Tone.DIM
        last = format_duration(figures.p99_s) if figures.count else marks.none
        return Row(
            key=lane.name,
            cells=(
                cell(lane.name, Tone.STRONG),
                Cell(spans=sparkline(ttft_s, width, marks, ceiling=limit_s or max(ttft_s, default=0.0))),
                cell(last, tone),
                Cell(spans=sparkline(rps, width, marks, ceiling=max(rps, default=0.0))),
                cell(f"{rps[-1]:.1f}") if rps and not is_stale else cell(marks.none, Tone.DIM),
            ),
        )

"""The Trend panel as a table: what the screen has seen since it was opened, lane by lane."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.lane_figures import lane_quantiles
from fleetctl.model.slo import Metric, Quantiles, Validity
from fleetctl.model.status import LaneStatus
from fleetctl.units import format_duration
from fleetctl.views.canvas import Canvas, ratio_tone, sparkline
from fleetctl.views.figures import unknown_cell
from fleetctl.views.table import Align, Cell, Column, Layout, Table, Tone, cell, fill

if TYPE_CHECKING:
    from fleetctl.model.status import FleetStatus

_KEPT = 240  # statuses; four minutes at one a second
_TEN_S = 10.0
_WIDTH = {Layout.COMPACT: 18, Layout.NORMAL: 36, Layout.WIDE: 24}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendRow:
    """A lane with what was seen of it, and how it is looked at."""

    lane: LaneStatus
    ttft_s: tuple[float, ...]
    rps: tuple[float, ...]
    canvas: Canvas
    is_stale: bool

    @property
    def limit_s(self) -> float:
        """The promise on TTFT; 0 where there is none."""
        target = self.lane.slo.strictest(Metric.TTFT)
        return target.limit_s if target else 0.0


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
        rows = (
            TrendRow(
                lane=lane,
                ttft_s=tuple(self._ttft_s.get(lane.name, ())),
                rps=tuple(self._rps.get(lane.name, ())),
                canvas=canvas,
                is_stale=is_stale,
            )
            for lane in status.lanes
        )
        return fill(_COLUMNS, rows, key=lambda row: row.lane.name)


def _ttft_line(row: TrendRow) -> Cell:
    ceiling = row.limit_s or max(row.ttft_s, default=0.0)
    return Cell(spans=sparkline(row.ttft_s, _WIDTH[row.canvas.layout], row.canvas.marks, ceiling=ceiling))


def _ttft_now(row: TrendRow) -> Cell:
    figures = Quantiles() if row.is_stale else lane_quantiles(row.lane, Metric.TTFT)
    is_sure = bool(row.limit_s) and figures.validity is Validity.OK
    tone = ratio_tone(figures.p99_s / row.limit_s) if is_sure else Tone.DIM
    return cell(format_duration(figures.p99_s), tone) if figures.count else unknown_cell()


def _rps_line(row: TrendRow) -> Cell:
    ceiling = max(row.rps, default=0.0)
    return Cell(spans=sparkline(row.rps, _WIDTH[row.canvas.layout], row.canvas.marks, ceiling=ceiling))


def _rps_now(row: TrendRow) -> Cell:
    return cell(f"{row.rps[-1]:.1f}") if row.rps and not row.is_stale else unknown_cell()


_COLUMNS = (
    Column[TrendRow](key="lane", title="LANE", cell=lambda row: cell(row.lane.name, Tone.STRONG)),
    Column[TrendRow](key="ttft", title="TTFT P99, full height = SLO", cell=_ttft_line),
    Column[TrendRow](key="ttft_now", title="NOW", cell=_ttft_now, align=Align.RIGHT),
    Column[TrendRow](key="rps", title="RPS in", cell=_rps_line),
    Column[TrendRow](key="rps_now", title="NOW", cell=_rps_now, align=Align.RIGHT),
)

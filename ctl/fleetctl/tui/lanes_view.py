"""The Lanes panel as a table: what each lane promised, measures, refuses and holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.lane_figures import WINDOW_S, lane_quantiles
from fleetctl.model.ladder import LadderStep
from fleetctl.model.slo import Metric, Quantiles, Validity
from fleetctl.tui.cells import Cell, Column, Layout, Row, Span, Table, Tone, cell
from fleetctl.tui.glyphs import Canvas, Glyphs, bar, ratio_tone
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.model.gateway import LaneWindow
    from fleetctl.model.status import FleetStatus, LaneStatus

_BAR_WIDTH = {Layout.COMPACT: 0, Layout.NORMAL: 6, Layout.WIDE: 12}

_COLUMNS = (
    Column(title="LANE"),
    Column(title="TTFT P99/SLO"),
    Column(title="ITL P99/SLO"),
    Column(title="QUEUE WAIT", is_right=True, since=Layout.NORMAL),
    Column(title="RPS in/ok"),
    Column(title="SHED", is_right=True),
    Column(title="BURN 5m/1h"),
    Column(title="WANT", is_right=True),
    Column(title="RDY", is_right=True),
    Column(title="SPOT", is_right=True, since=Layout.NORMAL),
    Column(title="STEP"),
    Column(title="IN-FLIGHT", is_right=True, since=Layout.WIDE),
    Column(title="QUEUED", is_right=True, since=Layout.WIDE),
    Column(title="TTFT P50", is_right=True, since=Layout.WIDE),
    Column(title="PRESSURE", is_right=True, since=Layout.WIDE),
    Column(title="WHY", since=Layout.WIDE, is_flexible=True),
)


def lanes_table(status: FleetStatus, canvas: Canvas, *, is_stale: bool) -> Table:
    """Return the lanes in the profile's order. Stale figures are not shown; records are."""
    lanes = status.lanes
    layout, marks = canvas.layout, canvas.marks
    width = _BAR_WIDTH[layout]
    columns = (
        [cell(lane.name, Tone.STRONG) for lane in lanes],
        _latencies(lanes, (Metric.TTFT, Metric.COMPLETION, Metric.E2E), width, marks, is_stale=is_stale),
        _latencies(lanes, (Metric.ITL,), width, marks, is_stale=is_stale),
        [_queue_wait(lane, marks, is_stale=is_stale) for lane in lanes],
        _pairs([_rates(lane, is_stale=is_stale) for lane in lanes], marks),
        [_shed(lane, marks, is_stale=is_stale) for lane in lanes],
        _pairs([_burn(lane, is_stale=is_stale) for lane in lanes], marks),
        [cell(str(lane.wanted)) for lane in lanes],
        [cell(str(lane.ready), Tone.WARN if lane.ready < lane.wanted else Tone.PLAIN) for lane in lanes],
        [cell(str(lane.spot), Tone.PLAIN if lane.spot else Tone.DIM) for lane in lanes],
        [_step(lane) for lane in lanes],
        [_now(lane, "in_flight", marks, is_stale=is_stale) for lane in lanes],
        [_now(lane, "queued", marks, is_stale=is_stale) for lane in lanes],
        [_median(lane, marks, is_stale=is_stale) for lane in lanes],
        [_pressure(lane, marks, is_stale=is_stale) for lane in lanes],
        [cell(lane.reason, Tone.DIM) for lane in lanes],
    )
    rows = tuple(Row(key=lane.name, cells=tuple(column[i] for column in columns)) for i, lane in enumerate(lanes))
    return Table(columns=_COLUMNS, rows=rows).within(layout)


def _latencies(
    lanes: tuple[LaneStatus, ...], metrics: tuple[Metric, ...], width: int, marks: Glyphs, *, is_stale: bool
) -> list[Cell]:
    """Return measured/promised, the slashes one under another, each with its bar."""
    found = [_measured(lane, metrics, is_stale=is_stale) for lane in lanes]
    texts = [
        (format_duration(measured) if measured is not None else marks.none, _limit(limit, suffix))
        for measured, limit, suffix, _ in found
    ]
    left = max((len(text) for text, _ in texts), default=0)
    right = max((len(text) for _, text in texts), default=0)
    cells = []
    for (measured, limit, _, validity), (figure, promise) in zip(found, texts, strict=True):
        is_sure = measured is not None and validity is Validity.OK
        ratio = measured / limit if measured is not None and limit else 0.0
        tone = ratio_tone(ratio) if is_sure else Tone.DIM
        spans: tuple[Span, ...] = ((figure.rjust(left), tone), (promise.ljust(right), Tone.DIM))
        if width:
            drawn = bar(ratio if is_sure else 0.0, width, marks, tone) if limit else ((" " * width, Tone.DIM),)
            spans = (*spans, (" ", Tone.PLAIN), *drawn)
        cells.append(Cell(spans=spans))
    return cells


def _limit(limit_s: float | None, suffix: str) -> str:
    return f"/{format_duration(limit_s)}{suffix}" if limit_s is not None else ""


def _measured(
    lane: LaneStatus, metrics: tuple[Metric, ...], *, is_stale: bool
) -> tuple[float | None, float | None, str, Validity]:
    """Return the figure, its limit, the metric's name if it is not the column's, and how sure it is."""
    target = next((t for metric in metrics if (t := lane.slo.strictest(metric)) is not None), None)
    metric = target.metric if target else metrics[0]
    figures = Quantiles() if is_stale else lane_quantiles(lane, metric)
    measured = figures.at_s(target.percentile if target else 0.99) if figures.count else None
    suffix = "" if metric is metrics[0] else " e2e"
    return measured, target.limit_s if target else None, suffix, figures.validity


def _queue_wait(lane: LaneStatus, marks: Glyphs, *, is_stale: bool) -> Cell:
    figures = Quantiles() if is_stale else lane_quantiles(lane, Metric.QUEUE_WAIT)
    if not figures.count:
        return cell(marks.none, Tone.DIM)
    return cell(format_duration(figures.p99_s), Tone.PLAIN if figures.validity is Validity.OK else Tone.DIM)


def _window(lane: LaneStatus, *, is_stale: bool) -> LaneWindow | None:
    return None if is_stale or lane.traffic is None else lane.traffic.window(WINDOW_S)


def _rates(lane: LaneStatus, *, is_stale: bool) -> tuple[str, str, Tone] | None:
    window = _window(lane, is_stale=is_stale)
    if window is None:
        return None
    return (
        _rate(window.offered / window.seconds),
        _rate(window.good / window.seconds),
        Tone.PLAIN if window.offered or window.finished else Tone.DIM,
    )


def _rate(per_s: float) -> str:
    return f"{per_s:.1f}" if per_s < 100 else f"{per_s:.0f}"


def _shed(lane: LaneStatus, marks: Glyphs, *, is_stale: bool) -> Cell:
    window = _window(lane, is_stale=is_stale)
    if window is None:
        return cell(marks.none, Tone.DIM)
    refused = sum(window.shed.values())
    return cell(str(refused), Tone.WARN if refused else Tone.DIM)


def _burn(lane: LaneStatus, *, is_stale: bool) -> tuple[str, str, Tone] | None:
    if is_stale or not lane.burn:
        return None
    rates = [lane.burn.get("5m"), lane.burn.get("1h")]
    worst = max(rate for rate in rates if rate is not None) if any(r is not None for r in rates) else 0.0
    tone = Tone.BAD if lane.burn_alert else Tone.WARN if worst > 1.0 else Tone.PLAIN
    text = [f"{rate:.1f}" if rate is not None else "" for rate in rates]
    return text[0], text[1], tone


def _pairs(found: list[tuple[str, str, Tone] | None], marks: Glyphs) -> list[Cell]:
    """Return a/b cells with the slashes one under another."""
    left = max((len(pair[0] or marks.none) for pair in found if pair), default=1)
    cells = []
    for pair in found:
        if pair is None:
            cells.append(cell(marks.none.rjust(left), Tone.DIM))
            continue
        a, b, tone = pair
        cells.append(Cell(spans=(((a or marks.none).rjust(left), tone), ("/", Tone.DIM), (b or marks.none, tone))))
    return cells


def _step(lane: LaneStatus) -> Cell:
    if lane.step is LadderStep.NORMAL:
        return cell(lane.step.value, Tone.DIM)
    return cell(lane.step.value, Tone.BAD if lane.step >= LadderStep.SHED else Tone.WARN)


def _now(lane: LaneStatus, what: str, marks: Glyphs, *, is_stale: bool) -> Cell:
    if is_stale or lane.traffic is None:
        return cell(marks.none, Tone.DIM)
    count = lane.traffic.in_flight if what == "in_flight" else lane.traffic.queued
    return cell(str(count), Tone.PLAIN if count else Tone.DIM)


def _median(lane: LaneStatus, marks: Glyphs, *, is_stale: bool) -> Cell:
    figures = Quantiles() if is_stale else lane_quantiles(lane, Metric.TTFT)
    return cell(format_duration(figures.p50_s)) if figures.count else cell(marks.none, Tone.DIM)


def _pressure(lane: LaneStatus, marks: Glyphs, *, is_stale: bool) -> Cell:
    if is_stale or lane.pressure is None:
        return cell(marks.none, Tone.DIM)
    return cell(f"{lane.pressure:.2f}", ratio_tone(lane.pressure))

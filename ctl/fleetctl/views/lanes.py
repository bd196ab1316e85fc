"""The columns of lanes: what each promised, measures, refuses and holds. A new one is written here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.conditions import lane_condition
from fleetctl.core.lane_figures import WINDOW_S, is_missed, lane_headline, lane_quantiles, lane_streams
from fleetctl.core.slo.wording import format_limit, format_value
from fleetctl.model.ladder import LadderStep
from fleetctl.model.slo import Metric, Quantiles, Validity
from fleetctl.model.status import LaneStatus
from fleetctl.units import format_duration
from fleetctl.views.budget import budget_tone
from fleetctl.views.canvas import Canvas, bar, ratio_tone
from fleetctl.views.conditions import condition_cell
from fleetctl.views.figures import (
    count_cell,
    duration_cell,
    format_measured,
    format_rate,
    percentile_cells,
    unknown_cell,
)
from fleetctl.views.streams import NO_STREAMS, gap_cell, stalled_cell, unit_cell
from fleetctl.views.table import NOTHING, Align, Cell, Column, Layout, Span, Table, Tone, cell, cut, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleetctl.model.gateway import LaneWindow
    from fleetctl.model.status import FleetStatus
    from fleetctl.model.stream import StreamFigures

_MODEL_WIDTH_MAX = 24  # on a screen; hub ids are up to 96 characters long
_UNTIMED = (Metric.STALL_RATE, Metric.TOKENS_PER_CHUNK)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    """A lane, and how it is looked at. Stale figures are not shown; records are."""

    lane: LaneStatus
    canvas: Canvas
    is_stale: bool

    @property
    def window(self) -> LaneWindow | None:
        """The last minute's figures, if they are current."""
        return None if self.is_stale or self.lane.traffic is None else self.lane.traffic.window(WINDOW_S)

    @property
    def streams(self) -> StreamFigures:
        """How evenly its answers stream, over the same time; nothing where that is stale."""
        return NO_STREAMS if self.is_stale else lane_streams(self.lane)

    def quantiles(self, metric: Metric) -> Quantiles:
        """Return a metric's percentiles, none where they are stale."""
        return Quantiles() if self.is_stale else lane_quantiles(self.lane, metric)


def lanes_table(status: FleetStatus, canvas: Canvas, columns: Sequence[Column[LaneRow]], *, is_stale: bool) -> Table:
    """Return the lanes in the profile's order; which model each serves only where they serve several."""
    has_several = len({lane.model for lane in status.lanes}) > 1
    shown = [column for column in columns if has_several or column.key != MODEL.key]
    rows = (LaneRow(lane=lane, canvas=canvas, is_stale=is_stale) for lane in status.lanes)
    return fill(shown, rows, key=lambda row: row.lane.name).within(canvas.layout)


def _latency(*metrics: Metric) -> Callable[[LaneRow], Cell]:
    """Return what draws measured/promised and a bar, on the first of these metrics that has a promise."""

    def draw(row: LaneRow) -> Cell:
        target = next((t for metric in metrics if (t := row.lane.slo.strictest(metric)) is not None), None)
        metric = target.metric if target else metrics[0]
        figures, limit_s = row.quantiles(metric), target.limit_s if target else None
        measured_s = figures.at_s(target.percentile if target else 0.99) if figures.count else None
        missed = not row.is_stale and is_missed(row.lane, metric)
        is_sure = measured_s is not None and (missed or figures.validity is Validity.OK)
        ratio = measured_s / limit_s if measured_s is not None and limit_s else 0.0
        tone = (Tone.BAD if missed else ratio_tone(ratio)) if is_sure else Tone.DIM
        figure = NOTHING
        if measured_s is not None:
            figure = format_measured(measured_s, figures.validity, row.canvas.marks)
        suffix = "" if metric is metrics[0] else " e2e"
        promise = f"/{format_duration(limit_s)}{suffix}" if limit_s is not None else ""
        tail = _bar(ratio if is_sure else 0.0, row.canvas, tone, has_limit=limit_s is not None)
        return Cell(spans=((figure, tone), (promise, Tone.DIM)), divider=len(figure), tail=tail)

    return draw


def _bar(ratio: float, canvas: Canvas, tone: Tone, *, has_limit: bool) -> tuple[Span, ...]:
    width = canvas.bar_width
    if not width:
        return ()
    drawn = bar(ratio, width, canvas.marks, tone) if has_limit else ((" " * width, Tone.DIM),)
    return ((" ", Tone.PLAIN), *drawn)


def _percentile(metric: Metric, which: int) -> Callable[[LaneRow], Cell]:
    """Return what draws the P50, P95 or P99 of a metric."""
    return lambda row: percentile_cells(row.quantiles(metric), row.canvas.marks)[which]


def _pair(left: str, right: str, tone: Tone) -> Cell:
    first = left or NOTHING
    return Cell(spans=((first, tone), ("/", Tone.DIM), (right or NOTHING, tone)), divider=len(first))


def _no_pair() -> Cell:
    return Cell(spans=((NOTHING, Tone.DIM),), divider=len(NOTHING))


def _rates(row: LaneRow) -> Cell:
    window = row.window
    if window is None:
        return _no_pair()
    tone = Tone.PLAIN if window.offered or window.finished else Tone.DIM
    return _pair(format_rate(window.offered / window.seconds), format_rate(window.good / window.seconds), tone)


def _rate(count: Callable[[LaneWindow], int]) -> Callable[[LaneRow], Cell]:
    def draw(row: LaneRow) -> Cell:
        window = row.window
        return unknown_cell() if window is None else cell(format_rate(count(window) / window.seconds))

    return draw


def _shed(row: LaneRow) -> Cell:
    window = row.window
    return unknown_cell() if window is None else count_cell(sum(window.shed.values()), Tone.WARN)


def _burn(row: LaneRow) -> Cell:
    lane = row.lane
    if row.is_stale or not lane.burn:
        return _no_pair()
    rates = [lane.burn.get("5m"), lane.burn.get("1h")]
    worst = max((rate for rate in rates if rate is not None), default=0.0)
    tone = Tone.BAD if lane.burn_alert else Tone.WARN if worst > 1.0 else Tone.PLAIN
    left, right = (f"{rate:.1f}" if rate is not None else "" for rate in rates)
    return _pair(left, right, tone)


def _burn_over(window: str) -> Callable[[LaneRow], Cell]:
    def draw(row: LaneRow) -> Cell:
        rate = None if row.is_stale else row.lane.burn.get(window)
        return unknown_cell() if rate is None else cell(f"{rate:.2g}x")

    return draw


def _budget(row: LaneRow) -> Cell:
    """Return the share that is left of the error budget; a record, so it is not stale without a controller."""
    budget = row.lane.budget
    if budget is None or budget.left is None:
        return unknown_cell()
    return cell(f"{budget.left:.0%}", budget_tone(budget.left))


def _step(row: LaneRow) -> Cell:
    step = row.lane.step
    if step is LadderStep.NORMAL:
        return cell(step.value, Tone.DIM)
    return cell(step.value, Tone.BAD if step >= LadderStep.SHED else Tone.WARN)


def _in_flight(row: LaneRow) -> Cell:
    traffic = None if row.is_stale else row.lane.traffic
    return unknown_cell() if traffic is None else count_cell(traffic.in_flight)


def _queued(row: LaneRow) -> Cell:
    traffic = None if row.is_stale else row.lane.traffic
    return unknown_cell() if traffic is None else count_cell(traffic.queued)


def _queue_wait(row: LaneRow) -> Cell:
    figures = row.quantiles(Metric.QUEUE_WAIT)
    return duration_cell(figures.p99_s, figures.validity, row.canvas.marks) if figures.count else unknown_cell()


def _pressure(row: LaneRow) -> Cell:
    pressure = None if row.is_stale else row.lane.pressure
    return unknown_cell() if pressure is None else cell(f"{pressure:.2f}", ratio_tone(pressure))


def _headline(row: LaneRow) -> Cell:
    """Return "ttft 212ms/300ms": the leading promise."""
    found = lane_headline(row.lane)
    if found is None:
        return unknown_cell()
    figure = NOTHING
    if found.measured_s is not None:
        mark = format_measured(found.measured_s, found.validity, row.canvas.marks)
        figure = mark if found.target.metric not in _UNTIMED else format_value(found.target, found.measured_s)
    text = f"{found.target.metric} {figure}/{format_limit(found.target)}"
    return cell(text, Tone.BAD if found.is_missed else Tone.PLAIN)


def _model(row: LaneRow) -> Cell:
    named = cell(row.lane.model)
    return cut(named, _MODEL_WIDTH_MAX, ellipsis=row.canvas.marks.ellipsis) if row.canvas.bar_width else named


def _ready(row: LaneRow) -> Cell:
    return cell(str(row.lane.ready), Tone.WARN if row.lane.ready < row.lane.wanted else Tone.PLAIN)


def _ready_of_wanted(row: LaneRow) -> Cell:
    tone = Tone.WARN if row.lane.ready < row.lane.wanted else Tone.PLAIN
    return cell(f"{row.lane.ready}/{row.lane.wanted}", tone)


def _message(row: LaneRow) -> Cell:
    return cell(lane_condition(row.lane).message or row.lane.reason)


LANE = Column[LaneRow](key="lane", title="LANE", cell=lambda row: cell(row.lane.name, Tone.STRONG))
MODEL = Column[LaneRow](key="model", title="MODEL", cell=_model, since=Layout.WIDE)
CONDITION = Column[LaneRow](key="condition", title="STATUS", cell=lambda row: condition_cell(lane_condition(row.lane)))
HEADLINE = Column[LaneRow](key="headline", title="TAIL/SLO", cell=_headline)
TTFT = Column[LaneRow](
    key="ttft", title="TTFT P99/SLO", cell=_latency(Metric.TTFT, Metric.COMPLETION, Metric.E2E), align=Align.DIVIDER
)
ITL = Column[LaneRow](key="itl", title="ITL P99/SLO", cell=_latency(Metric.ITL), align=Align.DIVIDER)
QUEUE_WAIT = Column[LaneRow](
    key="queue_wait", title="QUEUE WAIT", cell=_queue_wait, align=Align.RIGHT, since=Layout.NORMAL
)
RATES = Column[LaneRow](key="rates", title="RPS in/ok", cell=_rates, align=Align.DIVIDER)
OFFERED = Column[LaneRow](key="offered", title="RPS", cell=_rate(lambda w: w.offered), align=Align.RIGHT)
GOOD = Column[LaneRow](key="good", title="OK", cell=_rate(lambda w: w.good), align=Align.RIGHT)
SHED = Column[LaneRow](key="shed", title="SHED", cell=_shed, align=Align.RIGHT)
BURN = Column[LaneRow](key="burn", title="BURN 5m/1h", cell=_burn, align=Align.DIVIDER)
BURN_5M = Column[LaneRow](key="burn_5m", title="BURN 5m", cell=_burn_over("5m"), align=Align.RIGHT, since=Layout.WIDE)
BURN_1H = Column[LaneRow](key="burn_1h", title="1h", cell=_burn_over("1h"), align=Align.RIGHT, since=Layout.WIDE)
BUDGET = Column[LaneRow](key="budget", title="BUDGET", cell=_budget, align=Align.RIGHT, since=Layout.WIDE)
WANTED = Column[LaneRow](key="wanted", title="WANT", cell=lambda row: cell(str(row.lane.wanted)), align=Align.RIGHT)
READY = Column[LaneRow](key="ready", title="RDY", cell=_ready, align=Align.RIGHT)
READY_OF_WANTED = Column[LaneRow](
    key="ready_of_wanted", title="READY", cell=_ready_of_wanted, align=Align.RIGHT, until=Layout.COMPACT
)
SPOT = Column[LaneRow](
    key="spot", title="SPOT", cell=lambda row: count_cell(row.lane.spot), align=Align.RIGHT, since=Layout.NORMAL
)
STEP = Column[LaneRow](key="step", title="STEP", cell=_step)
IN_FLIGHT = Column[LaneRow](key="in_flight", title="IN-FLIGHT", cell=_in_flight, align=Align.RIGHT, since=Layout.WIDE)
QUEUED = Column[LaneRow](key="queued", title="QUEUED", cell=_queued, align=Align.RIGHT, since=Layout.WIDE)
PRESSURE = Column[LaneRow](key="pressure", title="PRESSURE", cell=_pressure, align=Align.RIGHT, since=Layout.WIDE)
WHY = Column[LaneRow](
    key="why", title="WHY", cell=lambda row: cell(row.lane.reason, Tone.DIM), since=Layout.WIDE, is_flexible=True
)
MESSAGE = Column[LaneRow](key="message", title="REASON", cell=_message)


def _percentiles(metric: Metric, name: str) -> tuple[Column[LaneRow], Column[LaneRow], Column[LaneRow]]:
    titles = (f"{name} P50", "P95", "P99")
    columns = (
        Column[LaneRow](
            key=f"{metric}_{title[-3:].lower()}", title=title, cell=_percentile(metric, which),
            align=Align.RIGHT, since=Layout.WIDE,
        )
        for which, title in enumerate(titles)
    )  # fmt: skip
    p50, p95, p99 = columns
    return p50, p95, p99


TTFT_PERCENTILES = _percentiles(Metric.TTFT, "TTFT")
ITL_PERCENTILES = _percentiles(Metric.ITL, "ITL")
WAIT_PERCENTILES = _percentiles(Metric.QUEUE_WAIT, "WAIT")
E2E_PERCENTILES = _percentiles(Metric.E2E, "E2E")


def _gap(which: int) -> Callable[[LaneRow], Cell]:
    """Return what draws the P50, P95 or P99 of the gaps between chunks."""
    return lambda row: gap_cell(row.streams, which, row.canvas.marks)


GAPS = tuple(
    Column[LaneRow](key=f"gap_{p}", title=title, cell=_gap(which), align=Align.RIGHT, since=Layout.WIDE)
    for which, (p, title) in enumerate((("p50", "GAP P50"), ("p95", "P95"), ("p99", "P99")))
)


def _stalled(row: LaneRow) -> Cell:
    return stalled_cell(row.streams, is_missed=not row.is_stale and is_missed(row.lane, Metric.STALL_RATE))


CHUNK = Column[LaneRow](
    key="chunk", title="TOK/CHUNK", cell=lambda row: unit_cell(row.streams), align=Align.RIGHT, since=Layout.WIDE
)
STALLED = Column[LaneRow](key="stalled", title="STALLED", cell=_stalled, align=Align.RIGHT, since=Layout.WIDE)

# What each face shows, in order.
LANES_LIVE: tuple[Column[LaneRow], ...] = (
    LANE, MODEL, TTFT, ITL,
    replace(STALLED, key="stalled_briefly", title="STALL", since=Layout.COMPACT, until=Layout.COMPACT), replace(STALLED, since=Layout.NORMAL),
    QUEUE_WAIT, RATES, SHED,
    replace(BURN_5M, title="BURN", since=Layout.COMPACT, until=Layout.COMPACT), replace(BURN, since=Layout.NORMAL),
    READY_OF_WANTED, replace(WANTED, since=Layout.NORMAL), replace(READY, since=Layout.NORMAL), SPOT, STEP,
    IN_FLIGHT, QUEUED, TTFT_PERCENTILES[0], replace(GAPS[2], title="GAP P99"), CHUNK, PRESSURE, WHY,
)  # fmt: skip
LANES_STATUS: tuple[Column[LaneRow], ...] = (
    LANE, replace(MODEL, since=Layout.COMPACT), CONDITION, WANTED, replace(READY, title="READY"), SPOT, HEADLINE, replace(STALLED, since=Layout.NORMAL),
    replace(QUEUED, title="QUEUE", since=Layout.NORMAL), STEP,
    MESSAGE,
)  # fmt: skip
LANES_FIGURES: tuple[Column[LaneRow], ...] = (
    LANE, replace(MODEL, since=Layout.COMPACT), CONDITION, OFFERED, GOOD, replace(SHED, title="REFUSED"), *TTFT_PERCENTILES[:2], TTFT, *ITL_PERCENTILES[:2], ITL,
    *GAPS, CHUNK, replace(STALLED, since=Layout.NORMAL),
    *WAIT_PERCENTILES[:2], replace(QUEUE_WAIT, title="WAIT"), replace(QUEUED, title="QUEUE", since=Layout.NORMAL), *E2E_PERCENTILES, BURN_5M, BURN_1H, BUDGET,
    replace(STEP, since=Layout.WIDE),
)  # fmt: skip

"""How figures read: durations with the mark of their validity, rates, ages, costs, clock times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.slo import Quantiles, Validity
from fleetctl.units import format_duration, format_usd
from fleetctl.views.canvas import PLAIN
from fleetctl.views.table import NOTHING, Cell, Tone, cell

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from fleetctl.model.plan import LanePlan
    from fleetctl.views.canvas import Glyphs


def unknown_cell() -> Cell:
    """Return the cell of a figure there is none of."""
    return cell(NOTHING, Tone.DIM)


def count_cell(count: int, tone: Tone = Tone.PLAIN) -> Cell:
    """Return a count; none is of no interest."""
    return cell(str(count), tone if count else Tone.DIM)


def duration_cell(seconds: float, validity: Validity, marks: Glyphs) -> Cell:
    """Return a measured duration, dim where it is not fit to decide on."""
    return cell(format_measured(seconds, validity, marks), Tone.PLAIN if validity is Validity.OK else Tone.DIM)


def percentile_cells(found: Quantiles, marks: Glyphs) -> tuple[Cell, Cell, Cell]:
    """Return P50, P95 and P99; only the P99 asks for many samples."""
    if not found.count:
        return unknown_cell(), unknown_cell(), unknown_cell()
    return (
        duration_cell(found.p50_s, Validity.OK, marks),
        duration_cell(found.p95_s, Validity.OK, marks),
        duration_cell(found.p99_s, found.validity, marks),
    )


def format_measured(seconds: float, validity: Validity = Validity.OK, marks: Glyphs = PLAIN) -> str:
    """Return a duration, with the mark of a figure that is not fit to decide on where no tone says so."""
    mark = {Validity.FEW: marks.few, Validity.STALE: marks.stale, Validity.INVALID: marks.invalid}.get(validity, "")
    return mark + format_duration(seconds)


def format_percentile(fraction: float) -> str:
    """Return "P99", "P99.9"."""
    return f"P{fraction * 100:g}"


def format_rate(per_s: float) -> str:
    """Return events per second, without decimals from a hundred on."""
    return f"{per_s:.1f}" if per_s < 100 else f"{per_s:.0f}"


def format_cost(usd_per_hour: float, cap: float | None = None) -> str:
    """Return "$5.04/h (cap $8.00)"."""
    return f"{format_usd(usd_per_hour)}/h" + (f" (cap {format_usd(cap)})" if cap is not None else "")


CPU = "CPU"  # in the place of a GPU's name


def format_replica_gpus(plan: LanePlan) -> str:
    """Return what one replica of a lane runs on: "4 x L40S", "2 nodes of 8 x H100"."""
    if plan.offering.is_on_cpu:
        return CPU
    one = f"{plan.gpus_each_node} x {plan.gpu}"
    return one if plan.node_count == 1 else f"{plan.node_count} nodes of {one}"


def format_age(since: datetime, now: datetime) -> str:
    """Return how long ago, in at most two units."""
    return format_duration(float(max(0, int((now - since).total_seconds()))))


def format_clock_time(at: datetime, now: datetime) -> str:
    """Return local time; with its date when that is not today."""
    local, today = at.astimezone(), now.astimezone().date()
    return local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M:%S")


def format_inputs(values: Mapping[str, float | str]) -> str:
    """Return a decision's inputs as "pressure 0.93, ready 3"."""
    return ", ".join(f"{key} {format_input(value)}" for key, value in values.items())


def format_input(value: float | str) -> str:
    """Return four digits of a figure."""
    return value if isinstance(value, str) else f"{value:.4g}"

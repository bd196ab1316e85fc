"""How values read inside a table's cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.slo import Metric, Quantiles, Validity
from fleetctl.units import format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from fleetctl.core.lane_figures import Headline
    from fleetctl.model.slo import LaneSlo

NOTHING = "-"
_MARKS = {Validity.FEW: "~", Validity.STALE: "?", Validity.INVALID: "!"}


def tail_of(headline: Headline | None) -> str:
    """Return "ttft 212ms/300ms": measured against promised; "~" says few samples, "-" none."""
    if headline is None:
        return NOTHING
    limit = format_duration(headline.target.limit_s)
    if headline.measured_s is None:
        return f"{headline.target.metric} -/{limit}"
    return f"{headline.target.metric} {seconds(headline.measured_s, headline.validity)}/{limit}"


def quantiles(found: Quantiles) -> tuple[str, str, str]:
    """Return P50, P95 and P99 as cells."""
    if not found.count:
        return NOTHING, NOTHING, NOTHING
    marks = (Validity.OK, Validity.OK, found.validity)
    return (
        seconds(found.p50_s, marks[0]),
        seconds(found.p95_s, marks[1]),
        seconds(found.p99_s, marks[2]),
    )


def seconds(value: float, validity: Validity = Validity.OK) -> str:
    """Return a duration, with the mark of a figure that is not fit to decide on."""
    return _MARKS.get(validity, "") + format_duration(value)


def limit(slo: LaneSlo, metric: Metric) -> str:
    """Return the strictest promise on a metric."""
    target = slo.strictest(metric)
    return format_duration(target.limit_s) if target else NOTHING


def percentile(fraction: float) -> str:
    """Return "P99", "P99.9"."""
    return f"P{fraction * 100:g}"


def rate(count: float, over_s: float) -> str:
    """Return events per second."""
    return f"{count / over_s:.1f}" if over_s else NOTHING


def cost(usd_per_hour: float, cap: float | None = None) -> str:
    """Return "$5.04/h (cap $8.00)"."""
    return f"{format_usd(usd_per_hour)}/h" + (f" (cap {format_usd(cap)})" if cap is not None else "")


def age(since: datetime, now: datetime) -> str:
    """Return how long ago, in at most two units."""
    passed_s = max(0.0, (now - since).total_seconds())
    return format_duration(float(int(passed_s))) if passed_s >= 1 else "0s"


def clock_time(at: datetime, now: datetime) -> str:
    """Return local time; with its date when that is not today."""
    local, today = at.astimezone(), now.astimezone().date()
    return local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M:%S")


def inputs(values: Mapping[str, float | str]) -> str:
    """Return a decision's inputs as "pressure 0.93, ready 3"."""
    return ", ".join(f"{key} {_input(value)}" for key, value in values.items())


def _input(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"

"""A simulation as one page that needs nothing else: tables and plots, no script, no network."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError
from fleetctl.files import write_whole
from fleetctl.operations.simulation import unrouted_line
from fleetctl.units import format_duration, format_fraction, format_usd
from fleetctl.views.plots import Series, line_plot
from fleetctl.views.table import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fleetctl.operations.simulation import PolicyLane, SimulationReport, SimulationResult

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
svg { width: 100%; margin: .5rem 0; } .title { font-weight: 600; font-size: 13px; } .tick { font-size: 11px; fill: #555; }
.grid { stroke: #e3e3e3; } .bad { color: #b00020; }
"""
_COLUMNS = (
    "policy", "lane", "offered", "good of offered", "worst seed", "refused", "unfinished", "goodput/s", "TTFT P50", "P95", "P99",
    "ITL P99", "replicas", "GPU-hours", "cost", "reversals", "time over SLO",
)  # fmt: skip


def write_report(report: SimulationReport, path: Path) -> None:
    """Write the page, whole or not at all. Raises ConfigError when the place cannot be written."""
    try:
        write_whole(path, page(report).encode(), mode=0o644)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error


def format_share(share: float | None) -> str:
    """Return a lane's share of good requests; a dash where none is decided."""
    return NOTHING if share is None else format_fraction(share)


def page(report: SimulationReport) -> str:
    """Return the page."""
    return "\n".join(_page(report)) + "\n"


def _page(report: SimulationReport) -> Iterator[str]:
    title = html.escape(f"{report.fleet}, simulated")
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
    first = report.runs[0]
    seeds = len({run.seed for run in report.runs})
    yield f"<p>{first.requests} requests from {html.escape(report.source)}, "
    yield f"{format_duration(first.duration_s)} of simulated time, {seeds} seed(s). "
    yield f"Good is good of offered: a refusal is a miss; the objective is {format_fraction(report.objective)}.</p>"
    if report.scenario or report.spot:
        what = ", ".join([*report.scenario, *([f"spot as in {report.spot}"] if report.spot else [])])
        yield f"<p>What happens: {html.escape(what)}.</p>"
    yield _table(_COLUMNS, (_cells(lane) for lane in report.comparison))
    yield from _plots(report)
    yield from _decisions(report)
    for run in report.runs:
        for violation in (*filter(None, [unrouted_line(run)]), *run.violations):
            yield f'<p class="bad">{html.escape(f"{run.policy}, seed {run.seed}: {violation}")}</p>'
    yield "</body></html>"


def _cells(lane: PolicyLane) -> tuple[str, ...]:
    return (
        lane.policy, lane.lane, str(lane.offered), format_share(lane.good_share), format_share(lane.good_share_min),
        str(lane.refused), str(lane.unfinished), f"{lane.goodput_rps:.2f}", *map(format_duration, (lane.ttft_p50_s, lane.ttft_p95_s, lane.ttft_p99_s)),
        format_duration(lane.itl_p99_s), f"{lane.replicas_mean:.2f}", f"{lane.gpu_hours:.2f}", format_usd(lane.cost_usd),
        f"{lane.reversals:g}", format_duration(lane.over_slo_s),
    )  # fmt: skip


def _plots(report: SimulationReport) -> Iterator[str]:
    """Yield each lane's plots, of every policy's first seed."""
    firsts = {run.policy: run for run in reversed(report.runs)}
    runs = [firsts[policy] for policy in dict.fromkeys(run.policy for run in report.runs)]
    for lane in [each.lane for each in runs[0].lanes]:
        yield f"<h2>{html.escape(lane)}</h2>"
        bucket_s = runs[0].bucket_s
        offered = Series(name="offered", values=_rates(runs[0], runs[0].lane(lane).offered_over_time))
        good = [Series(name=f"good, {run.policy}", values=_rates(run, run.lane(lane).good_over_time)) for run in runs]
        refused = [
            Series(name=f"refused, {run.policy}", values=_rates(run, run.lane(lane).refused_over_time)) for run in runs
        ]
        ready = [Series(name=f"ready, {run.policy}", values=run.lane(lane).ready_over_time) for run in runs]
        yield line_plot(f"{lane}: requests a second, by arrival", [offered, *good], step_s=bucket_s)
        if any(any(series.values) for series in refused):
            yield line_plot(f"{lane}: refused a second", refused, step_s=bucket_s)
        yield line_plot(f"{lane}: replicas in rotation", ready, step_s=bucket_s)


def _rates(run: SimulationResult, counts: Iterable[int]) -> tuple[float, ...]:
    return tuple(count / run.bucket_s for count in counts)


def _decisions(report: SimulationReport) -> Iterator[str]:
    yield "<h2>Decisions</h2>"
    rows = [
        (run.policy, str(run.seed), what, str(count)) for run in report.runs for what, count in run.decisions.items()
    ]
    yield _table(("policy", "seed", "decision", "times"), rows)


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{html.escape(each)}</th>" for each in columns)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(each)}</td>' for each in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"

"""A backtest as one page that needs nothing else."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from fleetctl.operations.simulation_report import format_share, lane_plots
from fleetctl.units import format_count, format_duration, format_usd
from fleetctl.views.table import NOTHING
from fleetctl.views.web_page import html_table, web_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.operations.backtest import BacktestReport
    from fleetctl.operations.recorded_lanes import BacktestLane
    from fleetctl.sim.result import SimulationResult

_COLUMNS = (
    "run", "lane", "offered", "good of offered", "refused", "TTFT P50", "TTFT P99", "TPOT P99", "end to end P99", "wait P99", "replicas", "ready",
    "cost", "time over SLO",
)  # fmt: skip


def backtest_page(report: BacktestReport, results: dict[str, SimulationResult]) -> str:
    """Return the page: how true the simulation is, every run, and their figures over time."""
    title = f"{report.fleet}, {report.since:%Y-%m-%d %H:%M} UTC, replayed"
    return "\n".join(web_page(title, _parts(report, results))) + "\n"


def _parts(report: BacktestReport, results: dict[str, SimulationResult]) -> Iterator[str]:
    yield f"<p>{format_count(report.requests, 'request')} in {format_duration(report.duration_s)}, "
    yield f"from {html.escape(report.recording)}.</p><h2>How true the simulation is</h2>"
    rows = [
        (name, *_cells(lane))
        for each in report.fidelity
        for name, lane in (("recorded", each.recorded), ("replayed", each.replayed))
    ]
    yield html_table(_COLUMNS, rows)
    for each in report.fidelity:
        if each.is_near is False:
            apart = f"{each.lane}: apart: {'; '.join(each.apart)}"
            yield f'<p class="bad">{html.escape(apart)}</p>'
    yield "<h2>The period under each profile</h2>"
    yield html_table(_COLUMNS, [(run.name, *_cells(lane)) for run in report.runs for lane in run.lanes])
    for line in report.cautions:
        yield f'<p class="bad">{html.escape(line)}</p>'
    yield from lane_plots(list(results.values()))


def _cells(lane: BacktestLane) -> tuple[str, ...]:
    waits = (lane.ttft_p50_s, lane.ttft_p99_s, lane.tpot_p99_s, lane.e2e_p99_s, lane.queue_wait_p99_s)
    return (
        lane.lane,
        str(lane.offered),
        format_share(lane.good_share),
        str(lane.refused),
        *(NOTHING if seconds is None else format_duration(seconds) for seconds in waits),
        f"{lane.replicas_mean:.2f}",
        f"{lane.ready_mean:.2f}",
        format_usd(lane.cost_usd),
        format_duration(lane.over_slo_s),
    )

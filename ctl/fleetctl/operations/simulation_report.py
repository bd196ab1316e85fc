"""A simulation as one page that needs nothing else: tables and plots, no script, no network."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError
from fleetctl.files import write_whole
from fleetctl.operations.simulation import unrouted_line
from fleetctl.units import format_duration, format_fraction, format_usd
from fleetctl.views.bursts import burst_cells, burst_line
from fleetctl.views.conditions import verdict_cell
from fleetctl.views.plots import Series, line_plot
from fleetctl.views.promises import good_cell, promise_cell, tail_cell
from fleetctl.views.table import NOTHING, Cell, cell
from fleetctl.views.web_page import html_table, web_page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from fleetctl.operations.simulated_workflows import PolicyWorkflows
    from fleetctl.operations.simulation import PolicyLane, PolicyTraffic, SimulationReport, SimulationResult

_COLUMNS = (
    "policy", "lane", "offered", "good of offered", "worst seed", "refused", "unfinished", "goodput/s", "TTFT P50", "P95", "P99",
    "ITL P99", "replicas", "GPU-hours", "cost", "reversals", "time over SLO", "SLO",
)  # fmt: skip
_TRAFFIC_COLUMNS = ("offered", "good of offered", "worst seed", "refused", "tokens", "of all tokens", "TTFT P50", "P99")

_WORKFLOW_COLUMNS = (
    "policy", "workflow", "offered", "completed", "failed", "good of offered", "elapsed P50", "P99", "SLO", "in queues", "between tries",
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
    return "\n".join(web_page(f"{report.fleet}, simulated", _parts(report))) + "\n"


def _parts(report: SimulationReport) -> Iterator[str]:
    first = report.runs[0]
    seeds = len({run.seed for run in report.runs})
    yield f"<p>{first.requests} requests from {html.escape(report.source)}, "
    yield f"{format_duration(first.duration_s)} of simulated time, {seeds} seed(s). "
    yield f"Good is good of offered: a refusal is a miss; the objective is {format_fraction(report.objective)}.</p>"
    if report.scenario or report.spot:
        what = ", ".join([*report.scenario, *([f"spot as in {report.spot}"] if report.spot else [])])
        yield f"<p>What happens: {html.escape(what)}.</p>"
    yield html_table(_COLUMNS, (_cells(lane) for lane in report.comparison))
    bursts = ((lane.policy, lane.lane, *burst_cells(lane.arrivals)) for lane in report.comparison)
    yield html_table(("policy", "lane", "burst 1s", "planned", "burst 10s", "planned"), bursts)
    yield from (f"<p>{html.escape(line)}</p>" for line in burst_lines(report))
    if report.tiers:
        rows = ((*_traffic_cells(each), promise_cell(each.promises).text) for each in report.tiers)
        yield html_table(("policy", "tier", *_TRAFFIC_COLUMNS, "SLO"), rows)
    if report.clients:
        yield html_table(("policy", "client", *_TRAFFIC_COLUMNS), (_traffic_cells(each) for each in report.clients))
    if report.workflows:
        yield html_table(_WORKFLOW_COLUMNS, (_played(each) for each in report.workflows))
    firsts = {run.policy: run for run in reversed(report.runs)}
    yield from lane_plots([firsts[policy] for policy in dict.fromkeys(run.policy for run in report.runs)])
    yield from _decisions(report)
    for run in report.runs:
        for violation in (*filter(None, [unrouted_line(run)]), *run.violations):
            yield f'<p class="bad">{html.escape(f"{run.policy}, seed {run.seed}: {violation}")}</p>'


def burst_lines(report: SimulationReport) -> Iterator[str]:
    """Yield which lanes' arrivals were burstier than planned, and what became of their SLO under each policy."""
    for each in report.comparison:
        if line := burst_line(f"{each.lane} under {each.policy}", each.arrivals, each.verdict.compliance):
            yield line


def _traffic_cells(each: PolicyTraffic) -> tuple[str, ...]:
    return (each.policy, each.name or NOTHING, *(shown.text for shown in traffic_cells(each)))


def traffic_cells(each: PolicyTraffic) -> tuple[Cell, ...]:
    """Return a tier's or a client's figures, as its row has them."""
    return (
        cell(str(each.offered)), good_cell(each.good_share, each.promises), cell(format_share(each.good_share_min)), cell(str(each.refused)),
        cell(str(each.served_tokens)), cell(format_fraction(each.token_share)), tail_cell(each.ttft_p50_s, 0.5, each.promises),
        tail_cell(each.ttft_p99_s, 0.99, each.promises),
    )  # fmt: skip


def elapsed_cells(each: PolicyWorkflows) -> tuple[Cell, ...]:
    """Return a kind's elapsed P50 and P99 beside what is promised, and whether all that is was kept."""
    p50_s, p99_s = (found or None for found in (each.elapsed_p50_s, each.elapsed_p99_s))
    promises = each.promises
    return tail_cell(p50_s, 0.5, promises), tail_cell(p99_s, 0.99, promises), promise_cell(promises)


def _cells(lane: PolicyLane) -> tuple[str, ...]:
    return (
        lane.policy, lane.lane, str(lane.offered), format_share(lane.good_share), format_share(lane.good_share_min),
        str(lane.refused), str(lane.unfinished), f"{lane.goodput_rps:.2f}", *map(format_duration, (lane.ttft_p50_s, lane.ttft_p95_s, lane.ttft_p99_s)),
        format_duration(lane.itl_p99_s), f"{lane.replicas_mean:.2f}", f"{lane.gpu_hours:.2f}", format_usd(lane.cost_usd),
        f"{lane.reversals:g}", format_duration(lane.over_slo_s), verdict_cell(lane.verdict).text,
    )  # fmt: skip


def _played(each: PolicyWorkflows) -> tuple[str, ...]:
    return (
        each.policy, each.kind, str(each.offered), str(each.completed), str(each.failed), format_share(each.good_share),
        *(shown.text for shown in elapsed_cells(each)), format_share(each.queued_share), format_share(each.backoff_share),
    )  # fmt: skip


def lane_plots(runs: Sequence[SimulationResult]) -> Iterator[str]:
    """Yield the plots of each lane, with the runs that have it; each run is named by its policy."""
    for lane in dict.fromkeys(each.lane for run in runs for each in run.lanes):
        yield f"<h2>{html.escape(lane)}</h2>"
        having = [run for run in runs if any(each.lane == lane for each in run.lanes)]
        bucket_s = having[0].bucket_s
        offered = Series(name="offered", values=_rates(having[0], having[0].lane(lane).offered_over_time))
        good = [Series(name=f"good, {run.policy}", values=_rates(run, run.lane(lane).good_over_time)) for run in having]
        refused = [
            Series(name=f"refused, {run.policy}", values=_rates(run, run.lane(lane).refused_over_time))
            for run in having
        ]
        ready = [Series(name=f"ready, {run.policy}", values=run.lane(lane).ready_over_time) for run in having]
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
    yield html_table(("policy", "seed", "decision", "times"), rows)

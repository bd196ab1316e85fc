"""A simulation as people read it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fleetctl.cli.output import View, lines, section
from fleetctl.codec import to_plain
from fleetctl.core.slo.wording import explain
from fleetctl.model.verdict import Compliance
from fleetctl.operations.kept_promises import missed_promises
from fleetctl.operations.simulation import promised_parts
from fleetctl.operations.simulation_report import burst_lines, elapsed_cells, format_share, traffic_cells
from fleetctl.units import format_duration, format_usd
from fleetctl.views.bursts import BURST_COLUMNS, burst_cells
from fleetctl.views.conditions import verdict_cell
from fleetctl.views.promises import promise_cell
from fleetctl.views.table import NOTHING, Cell, text_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.cli.output import OutputSection
    from fleetctl.operations.simulation import PolicyLane, PolicyTraffic, PolicyWorkflows, SimulationReport

_BAR = 30
_LANES = (
    "POLICY LANE >OFFERED >GOOD >WORST_SEED >REFUSED >UNFINISHED >GOODPUT_RPS >TTFT_P50 >TTFT_P95 >TTFT_P99 >ITL_P99 "
    ">REPLICAS >GPU_H >COST >REVERSALS >OVER_SLO SLO"
)
_TRAFFIC = ">OFFERED >GOOD >WORST_SEED >REFUSED >TOKENS >TOKEN_SHARE >TTFT_P50 >TTFT_P99"
_WORKFLOWS = "POLICY WORKFLOW >OFFERED >COMPLETED >FAILED >GOOD >WORST_SEED >RETRIES >ELAPSED_P50 >ELAPSED_P99 SLO >QUEUED >BACKOFF"
_FIGURES: dict[str, Callable[[PolicyLane], str | Cell]] = {
    "slo": lambda lane: verdict_cell(lane.verdict),
    "good": lambda lane: format_share(lane.good_share),
    "refused": lambda lane: str(lane.refused),
    "unfinished": lambda lane: str(lane.unfinished),
    "goodput rps": lambda lane: f"{lane.goodput_rps:.2f}",
    "ttft p50": lambda lane: _seconds(lane.ttft_p50_s),
    "ttft p95": lambda lane: _seconds(lane.ttft_p95_s),
    "ttft p99": lambda lane: _seconds(lane.ttft_p99_s),
    "itl p99": lambda lane: _seconds(lane.itl_p99_s),
    "replicas": lambda lane: f"{lane.replicas_mean:.2f}",
    "cost": lambda lane: format_usd(lane.cost_usd),
    "reversals": lambda lane: f"{lane.reversals:g}",
    "over slo": lambda lane: format_duration(lane.over_slo_s),
}


def progress_line(policy: str, seed: int, share: float) -> str:
    """Return how far a run is."""
    done = round(_BAR * share)
    return f"{policy}, seed {seed} [{'#' * done}{' ' * (_BAR - done)}] {share:4.0%}"


def simulation_view(report: SimulationReport, *, side_by_side: bool) -> View:
    """Return the report: every policy's lanes, below each other or side by side, and what was decided."""
    shown = _beside(report) if side_by_side else _lanes(report)
    run = report.runs[0]
    head = (
        f"{report.fleet}, requests from {report.source}: {run.requests} in {format_duration(run.duration_s)} "
        f"of simulated time, {len({each.seed for each in report.runs})} seed(s)"
    )
    policies = tuple(dict.fromkeys(each.policy for each in report.runs))
    played = [section(text_table(_WORKFLOWS, [_played(each) for each in report.workflows]))] if report.workflows else []
    missed = lines(*_missed(report))
    sections = (
        lines(head),
        shown,
        section(text_table(f"POLICY LANE {BURST_COLUMNS}", [_burst(each) for each in report.comparison])),
        lines(*burst_lines(report)),
        lines(*_fallbacks(report)),
        *_traffic(report),
        *played,
        missed,
        _decisions(report, policies),
    )
    return View(value=to_plain(report), names=policies, sections=sections)


def _traffic(report: SimulationReport) -> Iterator[OutputSection]:
    if report.tiers:
        rows = [(*_part(each), promise_cell(each.promises)) for each in report.tiers]
        yield section(text_table(f"POLICY TIER {_TRAFFIC} SLO", rows))
    if report.clients:
        yield section(text_table(f"POLICY CLIENT {_TRAFFIC}", [_part(each) for each in report.clients]))


def _missed(report: SimulationReport) -> Iterator[str]:
    """Yield which lanes missed their SLO and how, then which other promises were missed."""
    for each in report.comparison:
        if each.verdict.compliance is Compliance.MISSED:
            yield f"{each.lane} under {each.policy}: {explain(each.verdict)}"
    yield from missed_promises(promised_parts(report))


def _part(each: PolicyTraffic) -> tuple[str | Cell, ...]:
    return (each.policy, each.name or NOTHING, *traffic_cells(each))


def _lanes(report: SimulationReport) -> OutputSection:
    has_several = any(each.model for each in report.comparison)
    rows = [
        (*row[:2], each.model, *row[2:]) if has_several else row for each in report.comparison for row in (_row(each),)
    ]
    return section(text_table(_LANES.replace("LANE", "LANE MODEL", 1) if has_several else _LANES, rows))


def _fallbacks(report: SimulationReport) -> Iterator[str]:
    """Yield which model stood in for which, over all seeds."""
    counts = Counter[tuple[str, str, str]]()
    for run in report.runs:
        counts.update({(run.policy, each.model, each.served_by): each.requests for each in run.fallbacks})
    for (policy, model, served_by), count in counts.items():
        yield f"{policy}: {served_by} stood in for {model} {count} times"


def _row(lane: PolicyLane) -> tuple[str | Cell, ...]:
    return (
        lane.policy, lane.lane, str(lane.offered), format_share(lane.good_share), format_share(lane.good_share_min),
        str(lane.refused), str(lane.unfinished), f"{lane.goodput_rps:.2f}", _seconds(lane.ttft_p50_s), _seconds(lane.ttft_p95_s),
        _seconds(lane.ttft_p99_s), _seconds(lane.itl_p99_s), f"{lane.replicas_mean:.2f}", f"{lane.gpu_hours:.2f}",
        format_usd(lane.cost_usd), f"{lane.reversals:g}", format_duration(lane.over_slo_s), verdict_cell(lane.verdict),
    )  # fmt: skip


def _burst(lane: PolicyLane) -> tuple[str, ...]:
    return (lane.policy, lane.lane, *burst_cells(lane.arrivals))


def _played(each: PolicyWorkflows) -> tuple[str | Cell, ...]:
    return (
        each.policy, each.kind, str(each.offered), str(each.completed), str(each.failed), format_share(each.good_share),
        format_share(each.good_share_min), str(each.retries), *elapsed_cells(each),
        format_share(each.queued_share), format_share(each.backoff_share),
    )  # fmt: skip


def _beside(report: SimulationReport) -> OutputSection:
    policies = tuple(dict.fromkeys(each.policy for each in report.comparison))
    by_name = {(each.policy, each.lane): each for each in report.comparison}
    rows = [
        (lane, figure, *(show(by_name[policy, lane]) for policy in policies))
        for lane in dict.fromkeys(each.lane for each in report.comparison)
        for figure, show in _FIGURES.items()
    ]
    return section(text_table(f"LANE FIGURE {' '.join(f'>{policy}' for policy in policies)}", rows))


def _decisions(report: SimulationReport, policies: tuple[str, ...]) -> OutputSection:
    counts = {policy: Counter[str]() for policy in policies}
    for run in report.runs:
        counts[run.policy].update(run.decisions)
    rows = [
        (what, *(str(counts[policy][what]) for policy in policies)) for what in sorted(set().union(*counts.values()))
    ]
    if not rows:
        return lines("nothing was decided: no replica, no step changed")
    return section(text_table(f"DECISION {' '.join(f'>{policy}' for policy in policies)}", rows))


def _seconds(seconds: float) -> str:
    return format_duration(seconds) if seconds else NOTHING

"""A backtest as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.cli.output import View, lines, section
from fleetctl.codec import to_plain
from fleetctl.operations.simulation_report import format_share
from fleetctl.units import format_count, format_duration, format_fraction, format_usd
from fleetctl.views.table import NOTHING, text_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.cli.output import OutputSection
    from fleetctl.operations.backtest import BacktestReport, BacktestRun
    from fleetctl.operations.fidelity import FidelityLane
    from fleetctl.operations.recorded_lanes import BacktestLane

_FIGURES: dict[str, Callable[[BacktestLane], str]] = {
    "OFFERED": lambda lane: str(lane.offered),
    "GOOD": lambda lane: format_share(lane.good_share),
    "REFUSED": lambda lane: str(lane.refused),
    "TTFT_P50": lambda lane: _seconds(lane.ttft_p50_s),
    "TTFT_P99": lambda lane: _seconds(lane.ttft_p99_s),
    "TPOT_P99": lambda lane: _seconds(lane.tpot_p99_s),
    "E2E_P99": lambda lane: _seconds(lane.e2e_p99_s),
    "WAIT_P99": lambda lane: _seconds(lane.queue_wait_p99_s),
    "REPLICAS": lambda lane: f"{lane.replicas_mean:.2f}",
    "READY": lambda lane: f"{lane.ready_mean:.2f}",
    "COST": lambda lane: format_usd(lane.cost_usd),
    "OVER_SLO": lambda lane: format_duration(lane.over_slo_s),
}
_HEADINGS = " ".join(f">{name}" for name in _FIGURES)


def backtest_view(report: BacktestReport) -> View:
    """Return the report: how true the simulation is, then every run's lanes, then what was decided."""
    head = (
        f"{report.fleet}, recorded from {report.since:%Y-%m-%d %H:%M:%S} UTC for {format_duration(report.duration_s)}: "
        f"{format_count(report.requests, 'request')} ({report.recording})"
    )
    sections = (
        lines(head),
        section(
            text_table(f"LANE AS {_HEADINGS}", _fidelity_rows(report)),
            title="How true the simulation is: recorded, and replayed under the recorded profile",
        ),
        lines(*map(_verdict, report.fidelity)),
        section(text_table(f"RUN LANE {_HEADINGS}", _run_rows(report.runs)), title="The period under each profile"),
        section(text_table("RUN POLICY >NO_LANE >REPLICAS >COST INSTANCES", _totals(report)), title="In all"),
        _decisions(report.runs),
    )
    return View(value=to_plain(report), names=tuple(run.name for run in report.runs), sections=sections)


def _fidelity_rows(report: BacktestReport) -> Iterator[tuple[str, ...]]:
    for each in report.fidelity:
        yield (each.lane, "recorded", *(show(each.recorded) for show in _FIGURES.values()))
        yield (each.lane, "replayed", *(show(each.replayed) for show in _FIGURES.values()))


def _verdict(lane: FidelityLane) -> str:
    if lane.is_near is None:
        return f"{lane.lane}: too few requests to say"
    return (
        f"{lane.lane}: near" if lane.is_near else f"{lane.lane}: APART, so judge nothing by it: {'; '.join(lane.apart)}"
    )


def _run_rows(runs: tuple[BacktestRun, ...]) -> Iterator[tuple[str, ...]]:
    for lane in dict.fromkeys(each.lane for run in runs for each in run.lanes):
        for run in runs:
            for each in run.lanes:
                if each.lane == lane:
                    yield (run.name, lane, *(show(each) for show in _FIGURES.values()))


def _totals(report: BacktestReport) -> Iterator[tuple[str, ...]]:
    for run in report.runs:
        instances = "; ".join(f"{lane}: {instance}" for lane, instance in run.instances.items())
        share = sum(run.unrouted.values()) / (report.requests * max(1, run.seeds))
        yield (
            run.name,
            run.policy,
            format_fraction(share),
            f"{run.replicas_mean:.2f}",
            format_usd(run.cost_usd),
            instances,
        )


def _decisions(runs: tuple[BacktestRun, ...]) -> OutputSection:
    rows = [
        (what, *(str(run.decisions.get(what, 0)) for run in runs))
        for what in sorted({what for run in runs for what in run.decisions})
    ]
    if not rows:
        return lines("nothing was decided: no replica, no step changed")
    return section(text_table(f"DECISION {' '.join(f'>{run.name}' for run in runs)}", rows))


def _seconds(seconds: float | None) -> str:
    return NOTHING if seconds is None else format_duration(seconds)

"""The report on a fleet's promises, for people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.cli.output import Format, View, lines, section
from fleetctl.units import format_duration
from fleetctl.views.slo import decision_lines, hours_table, kinds_text, rule_lines, slo_table, stream_lines
from fleetctl.views.tiers import TIERS_TITLE, tier_table
from fleetctl.views.workflows import WORKFLOWS_TITLE, workflow_notes, workflow_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.cli.output import OutputSection
    from fleetctl.model.slo_report import SloReport


def slo_view(report: SloReport) -> View:
    """Return `slo`: a row a lane, breaches by kind, the worst hours, the alerts and the rules behind them."""
    return View(value=report, names=tuple(lane.lane for lane in report.lanes), sections=tuple(_sections(report)))


def _sections(report: SloReport) -> Iterator[OutputSection]:
    begun = min((lane.since for lane in report.lanes if lane.since is not None), default=report.since)
    since = begun.astimezone().strftime("%Y-%m-%d %H:%M")
    head = f"{report.fleet}: objective {100 * report.objective:.5g}% good over {format_duration(report.window_s)}; counted since {since}"
    yield lines(head if report.is_live else f"{head}; no controller answers: its last records")
    yield section(slo_table(report))
    streams = list(stream_lines(report))
    if streams:
        yield lines(*streams, title="Streams, last hour")
    tiers = tier_table((lane.lane, lane.tiers) for lane in report.lanes)
    if tiers is not None:
        yield section(tiers, title=TIERS_TITLE)
    if report.workflows is not None:
        yield section(workflow_table(report.workflows), title=WORKFLOWS_TITLE)
        yield lines(*workflow_notes(report.workflows))
    kinds = [f"{lane.lane}: {kinds_text(lane.kinds)}" for lane in report.lanes if lane.kinds]
    if kinds:
        yield lines(*kinds, title="Breaches")
    alerts = [
        f"{lane.lane}: {alert.name} {alert.state}: {alert.message}" for lane in report.lanes for alert in lane.alerts
    ]
    if alerts:
        yield lines(*alerts, title="Alerts")
    if any(lane.worst_hours for lane in report.lanes):
        yield section(hours_table(report), title="Worst hours")
        yield lines(*decision_lines(report), title="Decided in them", only=Format.WIDE)
    never = [line for rule, line in zip(report.rules, rule_lines(report), strict=True) if rule.never_fires]
    if never:
        yield lines(*never, title="Rules", only=Format.TABLE)
    yield lines(*rule_lines(report), title="Rules", only=Format.WIDE)

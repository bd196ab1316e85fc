"""How a fleet kept its promises, as tables and as a page to send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.units import format_duration
from fleetctl.views.budget import budget_tone
from fleetctl.views.decisions import action_cell
from fleetctl.views.streams import stream_line
from fleetctl.views.table import NOTHING, Cell, Table, Tone, cell, text_table
from fleetctl.views.tiers import TIERS_TITLE, tier_table
from fleetctl.views.workflows import WORKFLOWS_TITLE, workflow_notes, workflow_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime, tzinfo

    from fleetctl.model.slo_report import BurnRuleReport, LaneSloReport, SloReport, WorstHour

BURN_WINDOWS = ("5m", "30m", "1h", "6h", "3d")


def slo_table(report: SloReport) -> Table:
    """Return a row a lane: attained, left of the budget, burn rates, alerts."""
    burns = " ".join(f"{'>' if window in ('5m', '1h') else '+>'}BURN_{window}" for window in BURN_WINDOWS)
    return text_table(
        f"LANE >OBJECTIVE >ATTAINED >GOOD >BAD >BUDGET_LEFT {burns} ALERTS",
        [_row(report, lane) for lane in report.lanes],
    )


def hours_table(report: SloReport, *, zone: tzinfo | None = None) -> Table:
    """Return the worst hours of every lane, and what was done in them. `zone` None: the user's."""
    rows = [_hour_row(lane.lane, hour, zone) for lane in report.lanes for hour in lane.worst_hours]
    return text_table("LANE HOUR >BAD >OF >BUDGET KINDS DONE", rows)


def kinds_text(kinds: Mapping[str, int]) -> str:
    """Return "12 ttft, 3 refused": the most frequent first."""
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda kind: -kind[1]))


def stream_lines(report: SloReport) -> Iterator[str]:
    """Yield a line on each lane whose answers streamed within the last hour: how evenly."""
    for lane in report.lanes:
        if lane.streams is not None and (text := stream_line(lane.streams)):
            yield f"{lane.lane}: {text}"


def rule_lines(report: SloReport) -> Iterator[str]:
    """Yield a line on each burn-rate alert: what fires it, what it costs, or that it never fires."""
    for rule in report.rules:
        yield f"{rule.name} ({rule.severity}): {_rule(rule)}"


def slo_markdown(report: SloReport, *, zone: tzinfo | None = None) -> str:
    """Return the report as a page of Markdown, to be sent or filed. `zone` None: the user's."""
    begun = min((lane.since for lane in report.lanes if lane.since is not None), default=report.since)
    lines = [
        f"# SLO of {report.fleet}: {day(begun, zone)} to {day(report.at, zone)}",
        "",
        f"Objective: {report.objective:.4g} of requests good over {format_duration(report.window_s)}."
        + ("" if report.is_live else " No controller answers: these are its last records."),
        "",
        *_markdown_table(slo_table(report)),
        "",
        *(f"- {lane.lane}: {kinds_text(lane.kinds)}" for lane in report.lanes if lane.kinds),
        "",
        *_titled("## Streams, last hour", [f"- {line}" for line in stream_lines(report)]),
        *_tiers(report),
        *_workflows(report),
        "## Worst hours",
        "",
        *(_markdown_table(hours_table(report, zone=zone)) if any(x.worst_hours for x in report.lanes) else ("None.",)),
        "",
        "## Alerts",
        "",
        *(f"- {line}" for line in alert_lines(report)),
        "",
        *(f"- {line}" for line in rule_lines(report)),
    ]
    return "\n".join(lines) + "\n"


def _tiers(report: SloReport) -> tuple[str, ...]:
    table = tier_table((lane.lane, lane.tiers) for lane in report.lanes)
    return (f"## {TIERS_TITLE}", "", *_markdown_table(table), "") if table is not None else ()


def _workflows(report: SloReport) -> tuple[str, ...]:
    if report.workflows is None:
        return ()
    notes = [f"- {line}" for line in workflow_notes(report.workflows)]
    return (f"## {WORKFLOWS_TITLE}", "", *_markdown_table(workflow_table(report.workflows)), "", *notes, "")


def _titled(title: str, found: list[str]) -> tuple[str, ...]:
    return (title, "", *found, "") if found else ()


def alert_lines(report: SloReport) -> Iterator[str]:
    """Yield a line on each alert that is pending or fires, or that there is none."""
    found = [(lane.lane, alert) for lane in report.lanes for alert in lane.alerts]
    if not found:
        yield "None is pending or firing."
    for lane, alert in found:
        yield f"{lane}: {alert.name} ({alert.severity}) {alert.state} since {alert.since:%Y-%m-%d %H:%M} UTC: {alert.message}"


def decision_lines(report: SloReport, *, zone: tzinfo | None = None) -> Iterator[str]:
    """Yield what was decided in the worst hours, a line each."""
    for lane in report.lanes:
        for hour in lane.worst_hours:
            for entry in hour.decisions:
                at = entry.at.astimezone(zone).strftime("%m-%d %H:%M:%S")
                yield f"{at}  {entry.subject.name}: {action_cell(entry).text}: {entry.reason}"


def _row(report: SloReport, lane: LaneSloReport) -> tuple[str | Cell, ...]:
    return (
        f"{lane.lane} (removed)" if lane.is_removed else lane.lane,
        NOTHING if lane.is_removed else _share(report.objective),
        _attained(report, lane),
        str(lane.good),
        str(lane.bad),
        _left(lane),
        *(_burn(lane.burn.get(window)) for window in BURN_WINDOWS),
        ", ".join(f"{alert.name} {alert.state}" for alert in lane.alerts),
    )


def _attained(report: SloReport, lane: LaneSloReport) -> Cell:
    if lane.attainment is None:
        return cell(NOTHING, Tone.DIM)
    return cell(_share(lane.attainment), Tone.BAD if lane.attainment < report.objective else Tone.PLAIN)


def _left(lane: LaneSloReport) -> Cell:
    left = lane.budget.left if lane.budget else None
    return cell(NOTHING, Tone.DIM) if left is None else cell(f"{left:.1%}", budget_tone(left))


def _share(share: float) -> str:
    """Return a share with as many digits as it has nines: 99.5%, 99.987%."""
    return f"{100.0 * share:.5g}%"


def _burn(rate: float | None) -> Cell:
    if rate is None:
        return cell(NOTHING, Tone.DIM)
    return cell(f"{rate:.3g}x", Tone.WARN if rate > 1.0 else Tone.PLAIN)


def _hour_row(lane: str, hour: WorstHour, zone: tzinfo | None) -> tuple[str | Cell, ...]:
    done = ", ".join(f"{count} {action}" for action, count in hour.actions.items())
    if hour.journal_begins is not None:
        done = f"{done}; the journal no longer holds all of it".removeprefix("; ")
    return (
        lane,
        f"{hour.start.astimezone(zone):%Y-%m-%d %H:%M}",
        str(hour.bad),
        str(hour.good + hour.bad),
        NOTHING if hour.budget_share is None else f"{hour.budget_share:.1%}",
        kinds_text(hour.kinds),
        done,
    )


def _rule(rule: BurnRuleReport) -> str:
    if rule.never_fires:
        return f"never fires: {rule.never_fires}"
    windows = f"{format_duration(rule.long_s)} and {format_duration(rule.short_s)}"
    share = f"{rule.budget_share:.1%} of the budget within {format_duration(rule.long_s)}"
    return f"burn over {rule.rate:g}x, over {windows}: {share}"


def day(at: datetime, zone: tzinfo | None) -> str:
    """Return an instant to the minute. `zone` None: the user's."""
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M}"


def _markdown_table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(column.title for column in table.columns)} |"
    yield f"|{'---|' * len(table.columns)}"
    for row in table.rows:
        yield f"| {' | '.join(found.text.replace('|', '/') or NOTHING for found in row.cells)} |"

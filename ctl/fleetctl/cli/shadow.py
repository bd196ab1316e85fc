"""`fleetctl shadow`."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.absence import read_fleet
from fleetctl.cli.options import Fleet, Output
from fleetctl.cli.output import Format, OutputSection, View, emit, lines, section
from fleetctl.cli.site import site_of
from fleetctl.model.shadow import LaneStance, ShadowTotals
from fleetctl.operations.shadow import ShadowDecision, ShadowReport, shadow_report
from fleetctl.units import format_duration, format_fraction, format_usd, parse_duration_s
from fleetctl.views.figures import format_clock_time
from fleetctl.views.table import NOTHING, text_table

_TOTALS = "LANE >COMPARED >AGREED >DECISIONS >AGREED_ON >REPLICA_H >SHADOW_REPLICA_H >COST >SHADOW_COST >DIFFERENCE"
_DECISIONS = "TIME LANE AGREES ACTIVE WHY SHADOW SHADOW_WHY"


def shadow(
    ctx: typer.Context,
    fleet: Fleet = "",
    *,
    lane: Annotated[
        str, typer.Option("--lane", "-l", metavar="LANE", help="Only this lane's.", autocompletion=suggestions.lanes)
    ] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="DURATION", help="Only decisions of the last 10m, 24h, 7d.")
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many decisions, the newest.")
    ] = 20,
    output: Output = Format.TABLE,
) -> None:
    """Show what the active policy did and, beside it, what the one in shadow would have done; how often they agree.

    The profile names it: control: {shadow_policy: NAME}. It decides every tick on what the active one sees, and never acts:
    where its own choices would have led is for `backtest --policy` to say. COST is of the replicas wanted, at the plan's
    prices. In a fleet of mode shadow the active side is what stands.
    """
    site = site_of(ctx)
    start = site.clock.now() - timedelta(seconds=parse_duration_s(since)) if since else None
    report = shadow_report(site, read_fleet(site, fleet), lane=lane, since=start, limit=limit)
    emit(_view(report, site.clock.now()), output)


def _view(report: ShadowReport, now: datetime) -> View:
    active = report.active_policy or "nobody (mode: shadow)"
    sections: list[OutputSection] = [lines(f"{report.fleet}: {active} acts, {report.shadow_policy} is in shadow")]
    if not report.totals:
        sections.append(lines("nothing has been compared yet"))
    else:
        sections.append(section(text_table(_TOTALS, map(_total, report.totals)), title="In all"))
    if report.decisions:
        rows = _rows(report.decisions, now)
        sections.append(section(text_table(_DECISIONS, rows), title="Decisions, when either changed or acted"))
    return View(value=report, names=tuple(each.lane for each in report.totals), sections=tuple(sections))


def _total(totals: ShadowTotals) -> tuple[str, ...]:
    share = totals.agreed_share
    difference = totals.shadow_usd - totals.active_usd
    return (
        totals.lane,
        format_duration(round(totals.compared_s)),
        NOTHING if share is None else format_fraction(share),
        str(totals.decisions),
        str(totals.agreed),
        f"{totals.active_replica_hours:.2f}",
        f"{totals.shadow_replica_hours:.2f}",
        format_usd(totals.active_usd),
        format_usd(totals.shadow_usd),
        ("-" if difference < 0 else "+") + format_usd(abs(difference)),
    )


def _rows(decisions: tuple[ShadowDecision, ...], now: datetime) -> Iterator[tuple[str, ...]]:
    for each in decisions:
        found = each.comparison
        yield (
            format_clock_time(found.at, now),
            found.lane,
            "yes" if each.agrees else "NO",
            _stance(found.active),
            found.active.reason,
            _stance(found.shadow, would=True),
            found.shadow.reason,
        )


def _stance(stance: LaneStance, *, would: bool = False) -> str:
    """Return "3, shed: launch x2"."""
    step = "" if stance.step.value == "normal" else f", {stance.step.value}"
    acts = ", ".join(f"{name} x{count}" if count > 1 else name for name, count in stance.actions.items())
    verb = "would " if would else ""
    return f"{stance.wanted}{step}" + (f": {verb}{acts}" if acts else "")

"""How a fleet kept its promises, as one self-contained page with plots."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from fleetctl.units import format_duration
from fleetctl.views.plots import Series, line_plot
from fleetctl.views.slo import alert_lines, day, decision_lines, hours_table, kinds_text, rule_lines, slo_table
from fleetctl.views.table import Tone
from fleetctl.views.web_page import listed, paragraph, toned_table, web_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

    from fleetctl.model.slo_report import LaneSloReport, SloReport

_HOUR_S = 3600.0


def slo_page(report: SloReport, *, zone: tzinfo | None = None) -> str:
    """Return the report as an HTML page. `zone` None: the user's."""
    return "\n".join(web_page(f"SLO of {report.fleet}", _parts(report, zone))) + "\n"


def _parts(report: SloReport, zone: tzinfo | None) -> Iterator[str]:
    begun = min((lane.since for lane in report.lanes if lane.since is not None), default=report.since)
    yield paragraph(
        f"{day(begun, zone)} to {day(report.at, zone)}. Objective: {report.objective:.4g} of requests good over "
        f"{format_duration(report.window_s)}."
    )
    if not report.is_live:
        yield paragraph("No controller answers: these are its last records.", Tone.BAD)
    yield toned_table(slo_table(report))
    yield listed(f"{lane.lane}: {kinds_text(lane.kinds)}" for lane in report.lanes if lane.kinds)
    for lane in report.lanes:
        if lane.hours:
            first = day(lane.hours[0].start, zone)
            good, bad = requests_by_hour(lane)
            # Bad ones are few: beside the good ones they would be a line at the bottom.
            yield line_plot(f"{lane.lane}: good requests an hour, from {first}", (good,), step_s=_HOUR_S)
            yield line_plot(f"{lane.lane}: bad requests an hour", (bad,), step_s=_HOUR_S)
    yield "<h2>Worst hours</h2>"
    if any(lane.worst_hours for lane in report.lanes):
        yield toned_table(hours_table(report, zone=zone))
        yield f"<details><summary>Decided in them</summary>{listed(decision_lines(report, zone=zone))}</details>"
    else:
        yield paragraph("None.")
    yield "<h2>Alerts</h2>"
    yield listed(alert_lines(report))
    yield listed(rule_lines(report))
    yield f'<p class="dim">{html.escape(f"fleetctl slo {report.fleet}, {report.at:%Y-%m-%d %H:%M:%S} UTC")}</p>'


def requests_by_hour(lane: LaneSloReport) -> tuple[Series, Series]:
    """Return good and bad requests by the hour, from the first that had any; hours without one have none."""
    counted = {hour.start: hour for hour in lane.hours}
    first = min(counted)
    length = int((max(counted) - first).total_seconds() // _HOUR_S) + 1
    good, bad = [0.0] * length, [0.0] * length
    for start, hour in counted.items():
        place = int((start - first).total_seconds() // _HOUR_S)
        good[place], bad[place] = float(hour.good), float(hour.bad)
    return Series(name="good", values=tuple(good)), Series(name="bad", values=tuple(bad))

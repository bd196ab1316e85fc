"""Plans beside each other, as people read them: with keys changed, and from tight to loose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.cli.output import Format, View, lines, section
from fleetctl.cli.plan_explanation_view import signed
from fleetctl.codec import to_plain
from fleetctl.units import format_duration, format_usd
from fleetctl.views.table import NOTHING, text_table

if TYPE_CHECKING:
    from fleetctl.cli.output import OutputSection
    from fleetctl.operations.what_if import Frontier, FrontierPoint, WhatIf

_BAR = 24  # columns of the dearest plan
_MARK = "#"


def what_if_section(found: WhatIf) -> OutputSection:
    """Return each lane beside what the profile's own plan has of it."""
    rows = [
        (
            each.lane, f"{each.replicas_before} -> {each.replicas}",
            f"{format_usd(each.cost_usd_per_hour)} ({signed(each.cost_change_usd_per_hour, format_usd)})",
            f"{format_duration(each.ttft_p99_s)} ({signed(each.ttft_p99_change_s, format_duration)})",
            f"{format_duration(each.itl_p99_s)} ({signed(each.itl_p99_change_s, format_duration)})",
        )
        for each in found.lanes
    ]  # fmt: skip
    total = f"{format_usd(found.cost_usd_per_hour)} ({signed(found.cost_change_usd_per_hour, format_usd)})"
    rows.append(("all", NOTHING, total, NOTHING, NOTHING))
    title = f"With {', '.join(found.changes)}, beside the profile's own plan"
    return section(text_table("LANE >REPLICAS >$/H >TTFT_P99 >ITL_P99", rows), title=title)


def frontier_view(found: Frontier) -> View:
    """Return cost against tightness: a row a plan, with a bar as long as it is dear."""
    dearest = max((point.cost_usd_per_hour for point in found.points), default=0.0)
    rows = [_row(point, dearest) for point in found.points]
    keys = ", ".join(found.keys)
    how = f"each simulated: {found.proof}" if found.proof else "closed form, not simulated"
    refused = [f"{point.factor:g}: {point.refusal}" for point in found.points if point.refusal]
    return View(
        value=to_plain(found),
        names=tuple(f"{point.factor:g}={point.cost_usd_per_hour:g}" for point in found.points if not point.refusal),
        sections=(
            section(text_table("FACTOR +VALUES >REPLICAS >$/H >CHANGE >TTFT_P99 COST", rows), title=f"{keys} ({how})"),
            *([lines(*refused, title="No such plan")] if refused else []),
            lines("the keys' values at each factor: -o wide", only=Format.TABLE),
        ),
    )


def _row(point: FrontierPoint, dearest: float) -> tuple[str, ...]:
    values = ", ".join(point.values)
    if point.refusal:
        return f"{point.factor:g}", values, NOTHING, NOTHING, NOTHING, NOTHING, "no such plan"
    share = point.cost_usd_per_hour / dearest if dearest else 0.0
    return (
        f"{point.factor:g}", values, str(point.replicas), format_usd(point.cost_usd_per_hour),
        signed(point.cost_change_usd_per_hour, format_usd), format_duration(point.ttft_p99_s),
        _MARK * max(1, round(_BAR * share)),
    )  # fmt: skip

"""Why a lane or a replica is as it is, as lines to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.lane_figures import lane_streams
from fleetctl.units import format_duration, format_usd
from fleetctl.views.boot import phases_text
from fleetctl.views.budget import format_budget
from fleetctl.views.figures import CPU, format_input
from fleetctl.views.streams import stream_line
from fleetctl.views.table import Span, Tone
from fleetctl.views.tiers import tier_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime, tzinfo

    from fleetctl.model.journal import JournalEntry
    from fleetctl.model.plan import LanePlan
    from fleetctl.operations.fleets import Explanation

StyledLine = tuple[Span, ...]
_BLANK: StyledLine = (("", Tone.PLAIN),)


def explanation_lines(found: Explanation, *, now: datetime, zone: tzinfo | None) -> tuple[StyledLine, ...]:
    """Return what is so now, what was planned, and the decisions that led here, newest first."""
    lines: list[StyledLine] = [((found.now or "nothing has been decided on it yet", Tone.STRONG),), _BLANK]
    if found.replica is not None and (phases := phases_text(found.replica, now)):
        lines += [(("start    ", Tone.DIM), (phases, Tone.PLAIN))]
        lines += (
            [(("         ", Tone.DIM), (found.replica.boot_concern, Tone.WARN))] if found.replica.boot_concern else []
        )
        lines.append(_BLANK)
    if found.lane is not None and found.lane.model:
        lines += [(("model    ", Tone.DIM), (found.lane.model, Tone.PLAIN)), _BLANK]
    if found.lane is not None and found.lane.budget is not None:
        lines += [(("budget   ", Tone.DIM), (format_budget(found.lane.budget, zone=zone), Tone.PLAIN)), _BLANK]
    if found.lane is not None and (streams := stream_line(lane_streams(found.lane))):
        lines += [(("streams  ", Tone.DIM), (streams, Tone.PLAIN)), _BLANK]
    tiers = list(tier_lines(found.lane.traffic)) if found.lane is not None else []
    if tiers:
        lines += [
            *(((f"{'' if n else 'tiers':<9}", Tone.DIM), (text, Tone.PLAIN)) for n, text in enumerate(tiers)),
            _BLANK,
        ]
    if found.plan is not None:
        lines += [*_planned(found.plan), _BLANK]
    if not found.entries:
        lines.append((("the journal holds no entry on it", Tone.DIM),))
    for entry in reversed(found.entries):
        lines += _entry(entry, zone=zone)
    return tuple(lines)


def _planned(plan: LanePlan) -> Iterator[StyledLine]:
    spans = f" over {plan.node_count} nodes" if plan.node_count > 1 else ""
    on = CPU if plan.offering.is_on_cpu else f"{plan.gpu_count} {plan.gpu}"
    yield (
        ("planned  ", Tone.DIM),
        (f"{plan.replicas} x {on}{spans}", Tone.PLAIN),
        (f", {plan.on_demand} on-demand and {plan.spot} spot, {format_usd(plan.cost_usd_per_hour)}/h", Tone.PLAIN),
    )
    if plan.offering.is_on_cpu:
        return  # nothing is forecast of a CPU
    yield (
        ("bound by ", Tone.DIM),
        (f"{plan.constraint.value} at {plan.rps:.3g} rps; knee {plan.forecast.knee_rps:.3g} rps", Tone.PLAIN),
    )
    forecast = plan.forecast
    yield (
        ("forecast ", Tone.DIM),
        (f"TTFT P99 {format_duration(forecast.ttft_p99_s)}, ITL P99 {format_duration(forecast.itl_p99_s)}", Tone.PLAIN),
        (f", utilisation {forecast.utilisation:.2f}", Tone.PLAIN),
    )


def _entry(entry: JournalEntry, *, zone: tzinfo | None) -> Iterator[StyledLine]:
    would = "would " if entry.shadow else ""
    failed = "" if entry.ok else " failed"
    yield (
        (entry.at.astimezone(zone).strftime("%H:%M:%S  "), Tone.DIM),
        (f"{would}{entry.action}{failed}", Tone.PLAIN if entry.ok else Tone.BAD),
        (f"  {entry.reason}", Tone.PLAIN),
    )
    if entry.inputs:
        figures = "  ".join(f"{name}={format_input(value)}" for name, value in entry.inputs.items())
        yield ((f"          {figures}", Tone.DIM),)

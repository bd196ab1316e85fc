"""What would be lost, and how it would be replaced, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.cli.output import View, lines, section
from fleetctl.units import format_count, format_duration, format_usd
from fleetctl.views.table import Cell, Tone, cell, text_table

if TYPE_CHECKING:
    from fleetctl.model.loss import FleetLoss, LaneLoss

_COLUMNS = "LANE REPLICAS >READY >LEFT >NEEDED SLO >IN_FLIGHT >REPLACED_IN REPLACED_ON"


def loss_view(loss: FleetLoss) -> View:
    """Return what a drain or an interruption takes: a line a lane, then the cost, then what cannot be replaced."""
    table = section(text_table(_COLUMNS, (_row(lane) for lane in loss.lanes)))
    lacking = tuple(
        f"{lane.lane}: {lane.lacking} not replaced now: {lane.reason}" for lane in loss.lanes if lane.lacking
    )
    return View(
        value=loss,
        names=loss.replicas,
        sections=(lines(_headline(loss)), table, lines(*_cut(loss), _cost(loss), *lacking)),
    )


def _headline(loss: FleetLoss) -> str:
    if not loss.lanes:
        return f"{loss.target}: nothing of {loss.fleet} is there"
    many = len(loss.replicas) > 1
    how = f"leave{'' if many else 's'} as others come to serve" if loss.surges else f"go{'' if many else 'es'} at once"
    return f"{loss.target}: {format_count(len(loss.replicas), 'replica')} of {loss.fleet} {how}"


def _row(lane: LaneLoss) -> tuple[str | Cell, ...]:
    return (
        lane.lane,
        " ".join(lane.replicas),
        str(lane.ready),
        str(lane.ready_left),
        str(lane.needed) if lane.keeps_slo is not None else "-",
        _slo(lane),
        str(lane.in_flight),
        format_duration(lane.replace_s),
        ", ".join(dict.fromkeys(lane.offerings)) or "-",
    )


def _slo(lane: LaneLoss) -> Cell:
    """Return whether those left keep it; the requests that are cut miss it all the same."""
    if lane.keeps_slo is None:
        return cell("unknown", Tone.DIM)
    if not lane.keeps_slo:
        return cell("missed", Tone.BAD)
    if lane.in_flight_lost:
        return cell(f"kept, but by {lane.in_flight_lost} cut", Tone.WARN)
    return cell("kept", Tone.GOOD)


def _cut(loss: FleetLoss) -> tuple[str, ...]:
    """Return what becomes of the requests that are in flight there, a line a lane."""
    if loss.surges:
        return ()
    return tuple(
        f"{lane.lane}: {format_count(lane.in_flight, 'request')} in flight there, cut unless they end within the notice: "
        f"{lane.in_flight_lost} lost, {lane.in_flight - lane.in_flight_lost} continued elsewhere"
        for lane in loss.lanes
        if lane.in_flight
    )


def _cost(loss: FleetLoss) -> str:
    surge = f", {format_usd(loss.surge_usd_per_hour)}/h more meanwhile" if loss.surge_usd_per_hour else ""
    return (
        f"Cost {format_usd(loss.cost_usd_per_hour)}/h now{surge}, {format_usd(loss.after_usd_per_hour)}/h once replaced"
    )

"""What a decision comes to for one lane: its aim and its answer, the reasons and the figures that are told of it."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.core.lane_view import LaneView
from fleetctl.core.overload import StepDecision
from fleetctl.core.reconcile.lane_report import LaneReport
from fleetctl.core.reconcile.lane_state import LaneDecision, LaneState
from fleetctl.core.scaling import Target
from fleetctl.model.profile import Mode
from fleetctl.model.reason import Reason, ReasonCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneAim:
    """What a lane should have: its ladder step, its count, and what is to be reported of it."""

    ladder: StepDecision
    target: Target
    report: LaneReport


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedLane:
    """A lane's answer, and what it stands on."""

    view: LaneView
    aim: LaneAim
    state: LaneState
    decided: LaneDecision


def reasons_of(result: DecidedLane, mode: Mode) -> tuple[Reason, ...]:
    """Return why a lane has what it has."""
    target, ladder = result.aim.target, result.aim.ladder
    reasons = [target.code.because(target.reason), *result.state.notes]
    if ladder.reason:
        reasons.append(ladder_code(ladder).because(ladder.reason))
    if result.view.spot_spare.reason:
        reasons.append(ReasonCode.SPOT_SPARE.because(result.view.spot_spare.reason))
    reasons += (*result.decided.notes, *result.aim.report.reasons)
    if mode is Mode.SHADOW:
        reasons.append(ReasonCode.SHADOW.because("shadow: not acted on"))
    return tuple(reasons)


def ladder_code(ladder: StepDecision) -> ReasonCode:
    """Return whose doing a lane's step is."""
    return ReasonCode.OPERATOR if ladder.pinned else ladder.code


def inputs_of(result: DecidedLane) -> dict[str, float | str]:
    """Return the figures that a lane's decision stands on, for the journal."""
    pressure, counts = result.view.pressure, result.view.counts
    figures: dict[str, float | str] = {
        "wanted": result.state.target.wanted,
        "ready": counts.ready,
        "pending": counts.pending,
        "validity": pressure.validity.value,
        "offered_rps": round(pressure.offered_rps, 4),
        "queued": pressure.queued,
        "in_flight": pressure.in_flight,
        "unmet": round(pressure.unmet, 4),
        "step": result.aim.ladder.memory.step.value,
    }
    if counts.late:
        figures["late"] = counts.late
    if result.view.spot_spare.short_share:
        figures["spot_short_share"] = round(result.view.spot_spare.short_share, 6)
    if pressure.level is not None:
        figures["pressure"] = round(pressure.level, 4)
    if pressure.latency is not None:
        figures["latency"] = pressure.latency.message
    if pressure.burn is not None:
        figures["burn_5m"] = round(pressure.burn, 3)
    firing = [alert.name.value for alert in result.decided.memory.alerts if alert.fired_at is not None]
    if firing:
        figures["alerts"] = ",".join(firing)
    return figures

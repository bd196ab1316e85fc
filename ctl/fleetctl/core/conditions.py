"""A fleet's and a lane's condition, as every face shows it: a type, a reason code, and a message for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from fleetctl.core.lane_figures import lane_headline
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.ladder import LadderStep
from fleetctl.model.slo import Validity

if TYPE_CHECKING:
    from fleetctl.core.lane_figures import Headline
    from fleetctl.model.status import FleetStatus, LaneStatus


class ConditionType(StrEnum):
    """The types of condition a fleet or a lane can be in, worst first."""

    STALE = "STALE"  # nobody answers: what is shown was true once
    STOPPING = "STOPPING"  # going down
    DOWN = "DOWN"  # nothing is left
    DEGRADED = "DEGRADED"  # fewer replicas than wanted and none on the way, a ladder step taken, or no gateway
    BREACH = "BREACH"  # measured outside its SLO
    STARTING = "STARTING"  # the missing replicas are on their way
    READY = "READY"


class ConditionReason(StrEnum):
    """Why a condition is the case."""

    CONTROLLER_SILENT = "controller-silent"
    GATEWAY_SILENT = "gateway-silent"
    NO_FIGURES = "no-figures"  # of a lane, as the gateway is silent
    GOING_DOWN = "going-down"
    NOTHING_LEFT = "nothing-left"
    LADDER_STEP = "ladder-step"  # a degradation is in force
    REPLICAS_MISSING = "replicas-missing"
    REPLICAS_PENDING = "replicas-pending"
    SLO_MISSED = "slo-missed"
    AS_WANTED = "as-wanted"


_SEVERITY = {condition: number for number, condition in enumerate(ConditionType)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition type, its reason code, and a message; empty where there is nothing to explain."""

    type: ConditionType
    reason_code: ConditionReason
    message: str = ""


def fleet_condition(status: FleetStatus) -> Condition:
    """Return a fleet's condition: its own, or its worst lane's."""
    if status.phase is DesiredPhase.DOWN:
        return _going_down(status)
    if not status.controller_alive:
        return Condition(
            type=ConditionType.STALE,
            reason_code=ConditionReason.CONTROLLER_SILENT,
            message="the controller does not answer; shown is what it last wrote down",
        )
    lanes = {lane.name: lane_condition(lane) for lane in status.lanes}
    name = min(lanes, key=lambda lane: _SEVERITY[lanes[lane].type], default="")
    worst = lanes[name] if name else Condition(type=ConditionType.READY, reason_code=ConditionReason.AS_WANTED)
    if not status.gateway_alive and worst.type is not ConditionType.STARTING:
        return Condition(
            type=ConditionType.DEGRADED,
            reason_code=ConditionReason.GATEWAY_SILENT,
            message="the gateway does not answer",
        )
    message = f"{name}: {worst.message}" if worst.message else status.reason
    return Condition(type=worst.type, reason_code=worst.reason_code, message=message)


def lane_condition(lane: LaneStatus) -> Condition:
    """Return a lane's condition."""
    if lane.validity is Validity.STALE and lane.traffic is None:
        return Condition(type=ConditionType.STALE, reason_code=ConditionReason.NO_FIGURES, message="no current figures")
    if lane.step > LadderStep.NORMAL:
        return Condition(
            type=ConditionType.DEGRADED,
            reason_code=ConditionReason.LADDER_STEP,
            message=f"ladder step {lane.step.value}",
        )
    if lane.ready < lane.wanted:
        return _short_of_replicas(lane)
    headline = lane_headline(lane)
    if headline is not None and headline.is_missed:
        return Condition(type=ConditionType.BREACH, reason_code=ConditionReason.SLO_MISSED, message=_missed(headline))
    return Condition(type=ConditionType.READY, reason_code=ConditionReason.AS_WANTED)


def _going_down(status: FleetStatus) -> Condition:
    live = sum(lane.live for lane in status.lanes)
    if live or status.gateway_alive:
        message = f"{live} replicas still hold a node"
        return Condition(type=ConditionType.STOPPING, reason_code=ConditionReason.GOING_DOWN, message=message)
    if status.shared_left:
        message = f"{status.shared_left} shared resources are not torn down yet"
        return Condition(type=ConditionType.STOPPING, reason_code=ConditionReason.GOING_DOWN, message=message)
    return Condition(type=ConditionType.DOWN, reason_code=ConditionReason.NOTHING_LEFT)


def _short_of_replicas(lane: LaneStatus) -> Condition:
    message = f"{lane.ready} of {lane.wanted} replicas ready"
    if lane.ready + lane.pending >= lane.wanted:
        return Condition(type=ConditionType.STARTING, reason_code=ConditionReason.REPLICAS_PENDING, message=message)
    return Condition(type=ConditionType.DEGRADED, reason_code=ConditionReason.REPLICAS_MISSING, message=message)


def _missed(headline: Headline) -> str:
    target = headline.target
    measured = f"{headline.measured_s or 0.0:.3g}s > {target.limit_s:.3g}s"
    return f"{target.metric} P{target.percentile * 100:g} {measured}"

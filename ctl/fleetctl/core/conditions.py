"""A fleet's and a lane's condition, as every face shows it: a type, a reason code, and a message for people."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from fleetctl.core.machines import machine_count
from fleetctl.core.slo.tier_promises import tier_misses
from fleetctl.core.slo.wording import explain
from fleetctl.model.alert import AlertName, AlertSeverity, AlertState
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.ladder import LadderStep
from fleetctl.model.reason import ReasonCode
from fleetctl.model.slo import Validity
from fleetctl.model.verdict import Compliance
from fleetctl.spelling import is_name
from fleetctl.units import format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from fleetctl.model.alert import Alert
    from fleetctl.model.observation import StoreCondition
    from fleetctl.model.status import FleetStatus, LaneStatus


class ConditionType(StrEnum):
    """The types of condition a fleet or a lane can be in, the worst for its users first."""

    STALE = "STALE"  # nobody answers: what is shown was true once
    STOPPING = "STOPPING"  # going down
    DOWN = "DOWN"  # nothing is left
    BREACH = "BREACH"  # surely outside its SLO
    DEGRADED = "DEGRADED"  # replicas lost, or fewer than wanted and none on the way, a ladder step, or no gateway
    STARTING = "STARTING"  # replicas that it has never had are on their way
    ALERT = "ALERT"  # its error budget burns fast, its queue is deep, or it is over a cap: users may be well meanwhile
    READY = "READY"


class ConditionReason(StrEnum):
    """Why a condition is the case."""

    CONTROLLER_MISSING = "controller-missing"
    CONTROLLER_SILENT = "controller-silent"
    CONTROLLER_FAILING = "controller-failing"  # it answers, and cannot decide
    GATEWAY_SILENT = "gateway-silent"
    STATE_FAULT = "state-fault"  # nothing can be written down: no new node is made
    NO_FIGURES = "no-figures"  # of a lane, as the gateway is silent
    GOING_DOWN = "going-down"
    NOTHING_LEFT = "nothing-left"
    LADDER_STEP = "ladder-step"  # a degradation is in force
    REPLICAS_MISSING = "replicas-missing"
    NONE_SERVES = "none-serves"  # replicas are ready, and the gateway can send requests to none of them
    START_IMPOSSIBLE = "start-impossible"  # its engine fails the same way however often it is started
    REPLICAS_PENDING = "replicas-pending"
    SLO_MISSED = "slo-missed"
    BUDGET_BURN = "budget-burn"  # an alert on the error budget fires
    QUEUE_DEPTH = "queue-depth"  # the alert on the queue fires
    CERTIFICATE_MISSING = "certificate-missing"  # the gateway has none that it could serve by
    CERTIFICATE_ENDS = "certificate-ends"  # soon, or it has ended
    CERTIFICATE_FAULT = "certificate-fault"  # what its files have now cannot be served
    OVER_COST_CAP = "over-cost-cap"  # a cap was lowered under a living fleet, or prices rose
    OVER_NODE_CAP = "over-node-cap"
    AS_WANTED = "as-wanted"


_NOWHERE = (ReasonCode.LAUNCH_BLOCKED, ReasonCode.OFFERING_UNOBTAINABLE)
_NOTHING_NEW = "serving goes on, nothing new is created"
_SEVERITY = {condition: number for number, condition in enumerate(ConditionType)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition type, its reason code, and a message; empty where there is nothing to explain."""

    type: ConditionType
    reason_code: ConditionReason
    message: str = ""


def fleet_condition(status: FleetStatus) -> Condition:
    """Return a fleet's headline: its own condition or its lanes' worst, with the messages of all."""
    found = fleet_conditions(status)
    headline = _headline(found, rest=status.reason)
    if status.reason and any(each.reason_code is ConditionReason.REPLICAS_MISSING for each in found):
        # What is wrong with the provider may be why.
        return replace(headline, message=f"{headline.message}; {status.reason}")
    return headline


def fleet_conditions(status: FleetStatus) -> tuple[Condition, ...]:
    """Return everything that is the case with a fleet, the worst first; its lanes' messages begin with their names."""
    if status.phase is DesiredPhase.DOWN:
        return (_going_down(status),)
    if not status.controller_alive:
        return (_without_controller(status),)
    if status.controller_failing_since is not None:
        return (_failing(status),)
    lanes = [(lane.name, found) for lane in status.lanes for found in lane_conditions(lane)]
    named = [replace(found, message=f"{name}: {found.message}" if found.message else "") for name, found in lanes]
    if status.store_condition is not None:
        named.append(_state_fault(status.store_condition))
    named += _over_caps(status)
    named += _silent_gateways(status)
    named += _certificate_conditions(status)
    found = _worst_first(named or [_READY])
    if status.gateway_alive:
        return found
    if status.gateway_stall:
        stalled = f"the gateway, {status.gateway_stall}; it is replaced"
        return (replace(_NO_GATEWAY, message=stalled), *found)
    # While the first replicas boot the gateway may still be on its way too; later its users get nothing.
    is_first_start = found[0].type is ConditionType.STARTING and not any(lane.ready for lane in status.lanes)
    return (*found, _NO_GATEWAY) if is_first_start else (_NO_GATEWAY, *found)


def lane_condition(lane: LaneStatus) -> Condition:
    """Return a lane's headline: what is worst for its users, with the messages of all that is the case."""
    return _headline(lane_conditions(lane))


def lane_conditions(lane: LaneStatus) -> tuple[Condition, ...]:
    """Return everything that is the case with a lane, the worst first; READY alone where nothing else is."""
    found = []
    if lane.validity is Validity.STALE:
        found.append(_NO_FIGURES)
    if lane.verdict.compliance is Compliance.MISSED:
        found.append(_condition(ConditionType.BREACH, ConditionReason.SLO_MISSED, _missed(lane)))
    if lane.step > LadderStep.NORMAL:
        message = f"ladder step {lane.step.value}"
        found.append(_condition(ConditionType.DEGRADED, ConditionReason.LADDER_STEP, message))
    if lane.ready < lane.wanted:
        found.append(_short_of_replicas(lane))
    if lane.ready and serves_nobody(lane):
        message = f"{lane.ready} replicas ready, and none of them answers the gateway"
        found.append(_condition(ConditionType.DEGRADED, ConditionReason.NONE_SERVES, message))
    found += [_firing(lane, alert) for alert in lane.alerts if alert.state is AlertState.FIRING]
    return _worst_first(found) if found else (replace(_READY, message=explain(lane.verdict)),)


def _missed(lane: LaneStatus) -> str:
    """Return what a lane misses, and whose promise that is where it is a tier's."""
    tiers = lane.traffic.tiers if lane.traffic is not None else ()
    return "; ".join((explain(lane.verdict), *tier_misses(lane.verdict, lane.slo, tiers)))


def _firing(lane: LaneStatus, alert: Alert) -> Condition:
    code = ConditionReason.QUEUE_DEPTH if alert.name is AlertName.QUEUE_DEPTH else ConditionReason.BUDGET_BURN
    message = f"alert {alert.name} ({alert.severity}) since {alert.since:%Y-%m-%d %H:%M:%S} UTC: {alert.message}"
    return _condition(ConditionType.ALERT, code, message)


def pages_somebody(lane: LaneStatus) -> bool:
    """Whether an alert fires that somebody is to be called for at once."""
    return any(a.severity is AlertSeverity.PAGE and a.state is AlertState.FIRING for a in lane.alerts)


def serves_nobody(lane: LaneStatus) -> bool:
    """Whether a lane that wants replicas has none for its users: none is ready, or the gateway has ejected all that are."""
    traffic = lane.traffic
    return bool(lane.wanted) and (
        not lane.ready or (traffic is not None and bool(traffic.ejected) and not traffic.serves)
    )


def _worst_first(found: list[Condition]) -> tuple[Condition, ...]:
    return tuple(sorted(found, key=lambda condition: _SEVERITY[condition.type]))


def _headline(found: tuple[Condition, ...], *, rest: str = "") -> Condition:
    """Return the first, with the messages of all in its own."""
    messages = [condition.message for condition in found if condition.message]
    return replace(found[0], message="; ".join(messages) or rest)


def _condition(type_: ConditionType, reason_code: ConditionReason, message: str = "") -> Condition:
    return Condition(type=type_, reason_code=reason_code, message=message)


_READY = _condition(ConditionType.READY, ConditionReason.AS_WANTED)
_NO_FIGURES = _condition(ConditionType.STALE, ConditionReason.NO_FIGURES, "no current figures")


def _silent_gateways(status: FleetStatus) -> Iterator[Condition]:
    """Yield each of several gateways that does not answer while others do: who is connected to it gets nothing."""
    for each in status.gateways if status.gateway_alive else ():
        if not each.answers and not each.is_leaving:
            stalled = f", {each.stall}; it is replaced" if each.stall else " does not answer"
            place = f" ({each.place})" if each.place else ""
            message = f"gateway {each.number}{place}{stalled}"
            yield _condition(ConditionType.DEGRADED, ConditionReason.GATEWAY_SILENT, message)


_NO_GATEWAY = _condition(ConditionType.DEGRADED, ConditionReason.GATEWAY_SILENT, "the gateway does not answer")


def no_controller(fleet: str, phase: DesiredPhase, *, at: datetime, seen_at: datetime | None, has_gateway: bool) -> str:
    """Return that no controller runs, since when, and what to type."""
    if not is_name(fleet):
        # It came before names were checked, or with a state from elsewhere; no path is made of it.
        return f"no fleet may be called so any more; take it down: fleetctl down -- {shlex.quote(fleet)}"
    seen = _seen(seen_at, at)  # last, as narrow screens cut the end
    if phase is DesiredPhase.DOWN:
        return f"no controller runs; to go on: fleetctl down {fleet}{seen}"
    if has_gateway:
        return f"no controller runs; the gateway is starting one{seen}"
    return f"neither controller nor gateway runs; to start them: fleetctl up PROFILE{seen}"


def silent_controller(trouble: str, *, at: datetime, seen_at: datetime | None) -> str:
    """Return that a controller does not answer, since when, and what keeps it from that, as its host knows."""
    return f"the controller does not answer{_since(seen_at, at)}: {trouble}"


def _absence(status: FleetStatus) -> str:
    """Return what is the case with a controller that does not answer; empty where one does."""
    if status.controller_alive:
        return ""
    if status.controller_host:
        seen = _seen(status.controller_seen_at, status.at)
        return f"kept by a controller on {status.controller_host}, whose figures are asked for there{seen}"
    if status.controller_trouble:
        return silent_controller(status.controller_trouble, at=status.at, seen_at=status.controller_seen_at)
    if not status.is_unattended:
        since = _since(status.controller_seen_at, status.at)
        if status.controller_stall:
            return f"the controller, {status.controller_stall}{since}; {_way_on(status)}"
        return f"the controller, process {status.controller_pid}, does not answer{since}"
    return no_controller(
        status.fleet, status.phase, at=status.at, seen_at=status.controller_seen_at, has_gateway=status.gateway_alive
    )


def _way_on(status: FleetStatus) -> str:
    """Return who replaces a controller that does not progress."""
    if status.gateway_alive and not status.gateway_stall:
        return "the gateway replaces it"
    gateway = f"the gateway, {status.gateway_stall}; " if status.gateway_stall else ""
    return f"{gateway}end it: kill -9 {status.controller_pid}"


def _seen(seen_at: datetime | None, at: datetime) -> str:
    return _since(seen_at, at).replace(" since", "; last seen", 1)


def _since(seen_at: datetime | None, at: datetime) -> str:
    if seen_at is None:
        return ""
    ago = format_duration(max(0, int((at - seen_at).total_seconds())))
    return f" since {seen_at:%Y-%m-%d %H:%M:%S} UTC ({ago} ago)"


def _without_controller(status: FleetStatus) -> Condition:
    missing = status.is_unattended
    return Condition(
        type=ConditionType.STALE,
        reason_code=ConditionReason.CONTROLLER_MISSING if missing else ConditionReason.CONTROLLER_SILENT,
        message=f"{_absence(status)}; shown is what it last wrote down",
    )


def _failure(status: FleetStatus) -> str:
    """Return what is the case with a controller whose every tick fails; empty where they do not."""
    since = status.controller_failing_since
    return "" if since is None else f"{status.reason}; so do all{_since(since, status.at)}"


def _failing(status: FleetStatus) -> Condition:
    message = f"{_failure(status)}: nobody looks after the fleet; shown is what was last seen"
    return _condition(ConditionType.STALE, ConditionReason.CONTROLLER_FAILING, message)


def _state_fault(found: StoreCondition) -> Condition:
    message = f"{found}; {_NOTHING_NEW}"
    return _condition(ConditionType.DEGRADED, ConditionReason.STATE_FAULT, message)


def _over_caps(status: FleetStatus) -> Iterator[Condition]:
    cost, cap = status.cost_usd_per_hour, status.max_cost_usd_per_hour
    # A fraction of a cent is rounding.
    if cap is not None and cost > cap + 1e-9:
        message = f"it costs {format_usd(cost)}/h, over the cap of {format_usd(cap)}/h; {_NOTHING_NEW}"
        yield _condition(ConditionType.ALERT, ConditionReason.OVER_COST_CAP, message)
    nodes = machine_count(replica.record for replica in status.replicas if replica.record.state.is_live)
    if status.max_nodes is not None and nodes > status.max_nodes:
        message = f"it has {nodes} nodes, over the cap of {status.max_nodes}; {_NOTHING_NEW}"
        yield _condition(ConditionType.ALERT, ConditionReason.OVER_NODE_CAP, message)


def _certificate_conditions(status: FleetStatus) -> Iterator[Condition]:
    """Yield what clients of the gateway's certificate meet, or are about to."""
    found = status.certificate
    if found is None:
        return
    if found.not_after is None:
        message = f"no client is served: {found.fault}"
        yield _condition(ConditionType.DEGRADED, ConditionReason.CERTIFICATE_MISSING, message)
    elif found.fault:
        message = f"{found.fault}; the certificate before is served on"
        yield _condition(ConditionType.ALERT, ConditionReason.CERTIFICATE_FAULT, message)
    if found.not_after is not None and found.ends_soon(status.at):
        left = found.not_after - status.at
        when = f"{found.not_after:%Y-%m-%d %H:%M} UTC"
        if left.total_seconds() <= 0:
            message = f"the gateway's certificate ended at {when}: no client takes it"
            yield _condition(ConditionType.DEGRADED, ConditionReason.CERTIFICATE_ENDS, message)
        else:
            message = (
                f"the gateway's certificate ends at {when}, in {format_duration(left.total_seconds())}; have it renewed"
            )
            yield _condition(ConditionType.ALERT, ConditionReason.CERTIFICATE_ENDS, message)


def _going_down(status: FleetStatus) -> Condition:
    live = sum(lane.live for lane in status.lanes)
    if live or status.gateway_alive:
        # What is wrong with the provider may be why; of a controller that fails it is said with that.
        why = _absence(status) or _failure(status) or status.reason
        message = "; ".join(filter(None, (f"{live} replicas still hold a node", why)))
        return Condition(type=ConditionType.STOPPING, reason_code=ConditionReason.GOING_DOWN, message=message)
    if status.shared_left:
        message = "; ".join(
            filter(None, (f"{status.shared_left} shared resources are not torn down yet", status.reason))
        )
        return Condition(type=ConditionType.STOPPING, reason_code=ConditionReason.GOING_DOWN, message=message)
    return Condition(type=ConditionType.DOWN, reason_code=ConditionReason.NOTHING_LEFT)


def _short_of_replicas(lane: LaneStatus) -> Condition:
    coming = f", {lane.pending} on the way" if lane.pending and lane.lost_since is not None else ""
    message = f"{lane.ready} of {lane.wanted} replicas ready{coming}{_last_failure(lane)}{_unobtainable(lane)}"
    if lane.cannot_start:
        return Condition(type=ConditionType.DEGRADED, reason_code=ConditionReason.START_IMPOSSIBLE, message=message)
    if lane.lost_since is None and lane.ready + lane.pending >= lane.wanted:
        return Condition(type=ConditionType.STARTING, reason_code=ConditionReason.REPLICAS_PENDING, message=message)
    return Condition(type=ConditionType.DEGRADED, reason_code=ConditionReason.REPLICAS_MISSING, message=message)


def _unobtainable(lane: LaneStatus) -> str:
    """Return why no more are ordered, where there is nowhere to put them."""
    return "".join(f"; {each.message}" for each in lane.reasons if each.code in _NOWHERE)


def _last_failure(lane: LaneStatus) -> str:
    """Return what the engine of the last failed start said."""
    if lane.engine_fault is None:
        return ""
    what = "the engine cannot start" if lane.cannot_start else "the last start failed"
    return f", {what}: {lane.engine_fault.line}"

"""Whether fleets serve their users inside the SLO, as scripts ask it: by exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.conditions import (
    ConditionReason,
    ConditionType,
    fleet_conditions,
    lane_condition,
    pages_somebody,
    serves_nobody,
)
from fleetctl.errors import SloBreachError, UnavailableError
from fleetctl.model.verdict import Compliance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.status import FleetStatus

_UNKNOWN_TYPES = frozenset((ConditionType.STALE, ConditionType.STOPPING, ConditionType.DOWN))


def check_service(statuses: Iterable[FleetStatus]) -> None:
    """Raise SloBreachError if a lane is in breach of its SLO or an alert pages somebody, else UnavailableError if a fleet is silent or serves nobody.

    A lane that wants replicas and has none in rotation, or none that answers the gateway, serves nobody; one that is degraded, starting further replicas
    or without traffic is well.
    """
    breaches, silent = [], []
    for status in statuses:
        conditions = fleet_conditions(status)
        breaches += [f"{status.fleet}: {found.message}" for found in conditions if found.type is ConditionType.BREACH]
        breaches += [
            f"{status.fleet}: {lane.name}: {lane_condition(lane).message}"
            for lane in status.lanes
            if status.controller_alive and pages_somebody(lane) and lane.verdict.compliance is not Compliance.MISSED
        ]
        silent += [
            f"{status.fleet}: {found.message or found.type}"
            for found in conditions
            if found.type in _UNKNOWN_TYPES or found.reason_code is ConditionReason.GATEWAY_SILENT
        ]
        silent += [
            f"{status.fleet}: {lane.name}: {lane_condition(lane).message}"
            if lane.ready
            else f"{status.fleet}: {lane.name}: none of {lane.wanted} replicas is ready"
            for lane in status.lanes
            if serves_nobody(lane)
        ]
    if breaches:
        raise SloBreachError("; ".join(breaches))
    if silent:
        raise UnavailableError("; ".join(silent), hint="fleetctl status shows what is known")

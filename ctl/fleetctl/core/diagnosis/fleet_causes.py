"""Causes that are the whole fleet's: nobody looks after it, or nobody serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.conditions import ConditionReason, fleet_conditions
from fleetctl.core.diagnosis.findings import Cause, CauseFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.core.diagnosis.evidence import FleetEvidence

_CAUSES = {
    ConditionReason.CONTROLLER_MISSING: Cause.CONTROLLER_STALE,
    ConditionReason.CONTROLLER_SILENT: Cause.CONTROLLER_STALE,
    ConditionReason.CONTROLLER_FAILING: Cause.CONTROLLER_STALE,
    ConditionReason.GATEWAY_SILENT: Cause.GATEWAY_DOWN,
    ConditionReason.STATE_FAULT: Cause.STATE_FAULT,
}


def fleet_causes(evidence: FleetEvidence) -> Iterator[CauseFound]:
    """Yield what is wrong with the fleet's processes and its state."""
    status = evidence.status
    for condition in fleet_conditions(status):
        cause = _CAUSES.get(condition.reason_code)
        if cause is not None:
            yield CauseFound(
                cause=cause,
                message=condition.message or "the gateway does not answer",
                evidence=(f"status is {condition.type} ({condition.reason_code})",),
                remedy=_remedy(cause, status.fleet),
            )


def _remedy(cause: Cause, fleet: str) -> str:
    if cause is Cause.CONTROLLER_STALE:
        return f"fleetctl logs {fleet} controller; it is started again by: fleetctl up PROFILE"
    if cause is Cause.GATEWAY_DOWN:
        return f"the controller starts another; if it does not: fleetctl logs {fleet} gateway"
    return "fleetctl doctor"

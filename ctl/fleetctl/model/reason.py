"""Why something was decided or done: a closed set of codes; the message beside one carries the figures."""

from __future__ import annotations

from enum import StrEnum


class ReasonCode(StrEnum):
    """What alerts, runbooks and filters go by; no message is ever parsed."""

    UNKNOWN = "unknown"  # written before there were codes
    # Capacity of a lane
    REPLICA_LACKING = "replica-lacking"  # fewer than wanted
    REPLICA_REPLACED = "replica-replaced"  # stands in for one that leaves
    OFFERING_UNOBTAINABLE = "offering-unobtainable"  # tried on the next one
    REPLICA_EXCESS = "replica-excess"
    LANE_REASSIGNED = "lane-reassigned"
    LANE_REMOVED = "lane-removed"  # no longer in the profile
    LADDER_STEP = "ladder-step"
    # A replica's life
    ORDERED = "ordered"
    ADOPTED = "adopted"  # its node was found by its token
    CREATE_REPEATED = "create-repeated"
    CREATE_REFUSED = "create-refused"
    CREATE_OVERDUE = "create-overdue"
    HEALTHY = "healthy"
    WARM_UP_LOST = "warm-up-lost"
    WARM_UP_FAILED = "warm-up-failed"
    WARMED = "warmed"
    START_OVERDUE = "start-overdue"
    RECOVERY_OVERDUE = "recovery-overdue"
    UNHEALTHY = "unhealthy"
    UNHEALTHY_AGAIN = "unhealthy-again"  # too often: replaced
    MISSING = "missing"  # not listed by the provider for long, and silent
    SPOT_NOTICE = "spot-notice"
    DRAINED = "drained"
    DRAIN_OVERDUE = "drain-overdue"
    STOP_REPEATED = "stop-repeated"
    DIED = "died"
    ENDED = "ended"  # as it was asked
    NODE_ORPHANED = "node-orphaned"
    # The fleet and its gateway
    FLEET_DOWN = "fleet-down"
    GATEWAY_MISSING = "gateway-missing"
    GATEWAY_SILENT = "gateway-silent"
    GATEWAY_STARTED = "gateway-started"
    OPERATOR = "operator"  # a person asked for it
    FAILED = "failed"  # what was tried did not work

"""Why a request is not served, in words clients and dashboards can rely on."""

from __future__ import annotations

from enum import StrEnum


class Refusal(StrEnum):
    """Goes out as x-fleetctl-reason and counts sheds."""

    UNKNOWN_LANE = "unknown-lane"  # the header names a lane that is not there
    NO_LANE = "no-lane"  # no lane's match takes this request
    QUEUE_FULL = "queue-full"
    PREDICTED_WAIT = "predicted-wait"  # it would wait longer than the lane allows
    MAX_WAIT = "max-wait"  # it has waited as long as the lane allows
    SHED = "shed"  # the ladder refuses what would have to wait
    BREAKER = "breaker"  # the ladder refuses all new requests
    ENGINES_BUSY = "engines-busy"  # replicas refused it
    NO_REPLICA = "no-replica"  # the lane has none, nor have the lanes it may spill to
    STOPPING = "stopping"  # the gateway is going down
    CONNECTIONS = "connections"  # too many at once

    @property
    def status(self) -> int:
        """Return the HTTP status: 400 for what the client must change, 429 for overload, 503 for what is broken."""
        if self in (Refusal.UNKNOWN_LANE, Refusal.NO_LANE):
            return 400
        if self in (Refusal.NO_REPLICA, Refusal.STOPPING, Refusal.CONNECTIONS):
            return 503
        return 429

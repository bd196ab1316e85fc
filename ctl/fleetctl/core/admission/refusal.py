"""Why a request is not served, in words clients and dashboards can rely on."""

from __future__ import annotations

from enum import StrEnum

from fleetctl.model.ladder import LADDER, LadderStep


class Refusal(StrEnum):
    """Goes out as x-fleetctl-reason and counts sheds. What a ladder step refuses is called after the step."""

    UNKNOWN_LANE = "unknown-lane"  # the header names a lane that is not there
    UNKNOWN_MODEL = "unknown-model"  # it names a model that is not there
    NOT_ALLOWED = (
        "not-allowed"  # it says what OpenAI's API does not allow, or wants what its model's lanes do not all serve
    )
    NO_LANE = "no-lane"  # no lane's match takes this request
    CONTEXT_LENGTH = "context-length"  # no engine it may go to holds a request this long
    QUEUE_FULL = "queue-full"
    PREDICTED_WAIT = "predicted-wait"  # it would wait longer than the lane allows
    MAX_WAIT = "max-wait"  # it has waited as long as the lane allows
    CAP_CONTEXT = LadderStep.CAP_CONTEXT.value  # its prompt is too long
    SHED = LadderStep.SHED.value  # it would have to wait
    BREAKER = LadderStep.BREAKER.value  # all new requests are refused
    TIER_SHARE = "tier-share"  # its tier, or its client, has more than its part, and others go first
    RETRY_BUDGET = "retry-budget"  # too many of its client's requests are retries of refused ones
    ENGINES_BUSY = "engines-busy"  # replicas refused it
    NO_REPLICA = "no-replica"  # the lane has none, nor have the lanes it may spill to
    FROM_ZERO = "from-zero"  # the lane has none yet, and the request has waited for its first as long as it may
    STOPPING = "stopping"  # the gateway is going down
    CONNECTIONS = "connections"  # too many at once

    @property
    def status(self) -> int:
        """Return the HTTP status: 400 or 404 for what the client must change, 429 for overload, 503 for what is broken."""
        if self is Refusal.UNKNOWN_MODEL:
            return 404
        if self in (Refusal.UNKNOWN_LANE, Refusal.NOT_ALLOWED, Refusal.NO_LANE, Refusal.CONTEXT_LENGTH):
            return 400
        if self in (Refusal.NO_REPLICA, Refusal.FROM_ZERO, Refusal.STOPPING, Refusal.CONNECTIONS):
            return 503
        return 429

    @property
    def is_shortage(self) -> bool:
        """Whether the lane lacks what the request needs, which another model may have; not what the client is refused for."""
        return self in _SHORTAGES

    @property
    def message(self) -> str:
        """Return what is the matter with the lane, as a clause about it."""
        return _MESSAGES[self]


_MESSAGES = {
    Refusal.UNKNOWN_LANE: "there is none of that name",
    Refusal.UNKNOWN_MODEL: "it does not serve that model",
    Refusal.NOT_ALLOWED: "the request is not allowed",
    Refusal.NO_LANE: "none takes this request",
    Refusal.CONTEXT_LENGTH: "its engines hold no request this long",
    Refusal.QUEUE_FULL: "its queue is full",
    Refusal.PREDICTED_WAIT: "the request would wait longer than it allows",
    Refusal.MAX_WAIT: "the request has waited as long as it allows",
    Refusal.TIER_SHARE: "the request's tier, or its client, has more than its part of it, and others go first",
    Refusal.RETRY_BUDGET: "too many of the client's requests are retries of refused ones; send fewer, at the time each is told",
    Refusal.ENGINES_BUSY: "its replicas are busy",
    Refusal.NO_REPLICA: "it has no replica",
    Refusal.FROM_ZERO: "its first replica is not ready yet, and the request has waited as long as max_wait_from_zero allows",
    Refusal.STOPPING: "the gateway is going down",
    Refusal.CONNECTIONS: "there are too many connections",
    **{Refusal(entry.step.value): entry.refusal for entry in LADDER if entry.refusal},
}
_SHORTAGES = frozenset(
    (
        Refusal.QUEUE_FULL,
        Refusal.PREDICTED_WAIT,
        Refusal.MAX_WAIT,
        Refusal.CAP_CONTEXT,
        Refusal.SHED,
        Refusal.BREAKER,
        Refusal.ENGINES_BUSY,
        Refusal.NO_REPLICA,
        Refusal.FROM_ZERO,
    )
)

"""Why something was decided or done: a closed set of codes; the message beside one carries the figures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReasonCode(StrEnum):
    """What alerts, runbooks and filters go by; no message is ever parsed."""

    UNKNOWN = "unknown"  # written before there were codes
    # How many replicas a lane should have
    PLANNED = "planned"
    SIGNALS_UNFIT = "signals-unfit"  # held: the figures are not fit to decide on
    LOAD = "load"  # offered load, waits or latency want more
    LANE_LIMIT = "lane-limit"  # at the lane's own bound
    CALM = "calm"  # fewer would do, for long enough
    LOAD_HELD = "load-held"  # the load needs what there is
    BURST_MEMORY = "burst-memory"  # fewer would do now; the last burst needed what there is
    CORDONED = "cordoned"  # it leaves a node or a zone as others serve in its stead
    FROZEN = "frozen"  # held: a person froze the lane or the fleet
    DISRUPTION_LIMIT = "disruption-limit"  # enough has left rotation lately by choice
    LAST_IN_ROTATION = "last-in-rotation"
    START_BACKOFF = "start-backoff"
    START_IMPOSSIBLE = "start-impossible"  # the engine fails the same way however often it is started
    LAUNCH_BLOCKED = "launch-blocked"  # no provider, no offering, or a cap
    MACHINE_AWAITED = "machine-awaited"  # that several replicas are to share
    SHADOW = "shadow"  # not acted on
    # Capacity of a lane
    REPLICA_LACKING = "replica-lacking"  # fewer than wanted
    REPLICA_REPLACED = "replica-replaced"  # stands in for one that leaves
    REPLICA_LATE = "replica-late"  # on its way for far longer than others took: one is ordered in its stead
    SPOT_SPARE = "spot-spare"  # one more, as spot nodes are lost often and replaced slowly
    SPOT_AGAIN = "spot-again"  # takes the place of an on-demand replica that stood in for spot
    OFFERING_UNOBTAINABLE = "offering-unobtainable"  # tried on the next one
    REPLICA_EXCESS = "replica-excess"
    LANE_REASSIGNED = "lane-reassigned"
    ASSIGNMENT_REFUSED = "assignment-refused"  # no such lane, or the replica cannot hold its requests
    LANE_REMOVED = "lane-removed"  # no longer in the profile
    LADDER_STEP = "ladder-step"
    BATCH_PRESSURE = "batch-pressure"  # paused for lanes that lack what it uses, or resumed
    SLO_MISSED = "slo-missed"
    SLO_KEPT = "slo-kept"  # again, after a breach
    ALERT_FIRING = "alert-firing"
    ALERT_RESOLVED = "alert-resolved"
    STREAM_UNIT = "stream-unit"  # tokens leave in larger or smaller chunks
    ANSWERS_LOOP = "answers-loop"
    PREFIX_LOST = "prefix-lost"  # a conversation's cached tokens are gone
    PREEMPTED = "preempted"  # streams lost their place in an engine
    EVICTION_GUARD = "eviction-guard"  # more of the KV cache is kept free, or less again
    BUDGET_BURN = "budget-burn"  # held, as the error budget burns fast or too many requests wait
    REPLICAS_MISSING = "replicas-missing"  # the lane waits for them; its ladder is not climbed
    # A replica's life
    NODE_REQUESTED = "node-requested"
    ADOPTED = "adopted"  # its node was found by its token
    CREATE_REPEATED = "create-repeated"
    CREATE_REFUSED = "create-refused"
    CREATE_OVERDUE = "create-overdue"
    HEALTHY = "healthy"
    WARM_UP_LOST = "warm-up-lost"
    WARM_UP_FAILED = "warm-up-failed"
    WARMED = "warmed"
    START_OVERDUE = "start-overdue"
    START_FAILED = "start-failed"  # its engine runs, and says or shows that it will never be ready
    CRASH_LOOP = "crash-loop"  # its engine ended so often that its machine starts it no more
    RECOVERY_OVERDUE = "recovery-overdue"
    UNHEALTHY = "unhealthy"
    STALLED = "stalled"  # its routes answer, and its engine makes no token
    SLOW_REPLICA = "slow-replica"  # much slower than its peers: left alone, then replaced
    UNHEALTHY_AGAIN = "unhealthy-again"  # too often: replaced
    MISSING = "missing"  # not listed by the provider for long, and silent
    SPOT_NOTICE = "spot-notice"
    NODE_NOTICE = "node-notice"  # the provider warns: rebalance, maintenance, not ready
    NODE_NOTICE_ENDED = "node-notice-ended"
    RESTART = "restart"  # it leaves rotation for its engine's restart, which a person asked for
    RESTART_LOST = "restart-lost"  # nobody knows whether the provider was told
    RESTART_FAILED = "restart-failed"  # the provider could not
    RESTARTED = "restarted"  # the provider has ended the old engine, another starts
    DRAINED = "drained"
    DRAIN_OVERDUE = "drain-overdue"
    STOP_REPEATED = "stop-repeated"
    DIED = "died"
    EVICTED = "evicted"  # its node was ended by somebody else, and its engine worked
    ENDED = "ended"  # as it was asked
    NODE_ORPHANED = "node-orphaned"
    # Rollouts
    ROLLOUT = "rollout"  # a new revision of the fleet, lane by lane
    ROLLOUT_CANARY = "rollout-canary"  # it serves beside the old ones first
    ROLLOUT_WAITS = "rollout-waits"  # for evidence, or for room
    ROLLOUT_FAILED = "rollout-failed"
    ROLLED_BACK = "rolled-back"
    OUTDATED = "outdated"  # a replica of an earlier revision
    # The fleet and its gateway
    FLEET_DOWN = "fleet-down"
    SHARED_NEEDED = "shared-needed"  # prepared before the first node is ordered
    SHARED_UNUSED = "shared-unused"  # torn down after the last node
    SHARED_ABANDONED = "shared-abandoned"  # could not be torn down: a tombstone is left
    UNVERIFIED = "unverified"  # no complete listing shows that nothing is left
    PROVIDER_TROUBLE = "provider-trouble"
    STATE_TROUBLE = "state-trouble"  # the state cannot be written or read
    PROBES_LATE = "probes-late"  # the controller does not get round to all replicas in time
    GATEWAY_READY = "gateway-ready"
    GATEWAY_MISSING = "gateway-missing"
    GATEWAY_SILENT = "gateway-silent"
    GATEWAY_STARTED = "gateway-started"
    GATEWAY_SURPLUS = "gateway-surplus"
    OBJECT_GONE = "object-gone"  # that the fleet was placed with: it is made again
    OPERATOR = "operator"  # a person asked for it
    OVERRIDE_ENDED = "override-ended"  # what a person had set until then
    FAILED = "failed"  # what was tried did not work

    def because(self, message: str) -> Reason:
        """Return this code with its figures in words."""
        return Reason(code=self, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A code, and the same in words."""

    code: ReasonCode
    message: str


def join_messages(reasons: tuple[Reason, ...]) -> str:
    """Return the messages as one clause after another."""
    return "; ".join(reason.message for reason in reasons)

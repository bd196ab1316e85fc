"""What a diagnosis says: causes, the figures that speak for each, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """Why users wait or fail; the order is that of the tree: what explains others comes before them."""

    # Nobody looks after the fleet, or nobody can serve
    CONTROLLER_STALE = "controller-stale"  # what is shown was true once
    GATEWAY_DOWN = "gateway-down"
    STATE_FAULT = "state-fault"  # nothing new is created
    ENGINE_CANNOT_START = "engine-cannot-start"
    # Fewer replicas serve than should
    OUT_OF_CAPACITY = "out-of-capacity"  # the provider has none, or refuses
    SPOT_LOST = "spot-lost"
    REPLICA_HUNG = "replica-hung"
    REPLICA_LOST = "replica-lost"
    BOOTING = "booting"  # cold start
    BAD_REVISION = "bad-revision"  # a rollout: what it put in force is worse than what was before
    STEP_PINNED = "step-pinned"  # by a person
    # What requests met
    GATEWAY_CPU = "gateway-cpu"  # its one event loop is late with everything
    ENGINE_ERRORS = "engine-errors"
    SLOW_REPLICA = "slow-replica"  # a straggler
    BALLOONING_ANSWERS = "ballooning-answers"  # few that do not stop take what all others need
    NOISY_CLIENT = "noisy-client"
    LONG_PROMPTS_AHEAD = "long-prompts-ahead"  # interference: the lanes are cut in the wrong place
    KV_CACHE_FULL = "kv-cache-full"
    KV_EVICTIONS = "kv-evictions"  # what was cached, or ran, had to make room
    BATCH_CROWDS = "batch-crowds"
    PREFIX_MISSES = "prefix-misses"
    AT_LIMIT = "at-limit"  # more is wanted than a bound or a cap allows
    OVERLOAD = "overload"  # more arrives than is served; more replicas are not there yet
    PROMPTS_TOO_LONG = "prompts-too-long"  # for the TTFT promised, even alone
    TOO_MANY_STREAMS = "too-many-streams"  # their steps are longer than the ITL promised
    CAPPED_ANSWERS = "capped-answers"  # a bound of the server's ends many: too low, or clients that ask for too much
    ANSWERS_LOOP = "answers-loop"  # models that do not stop take the steps of others
    BAD_REQUESTS = "bad-requests"  # clients' own doing


CAUSE_ORDER = {cause: number for number, cause in enumerate(Cause)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseFound:
    """One cause, with what speaks for it."""

    cause: Cause
    lane: str = ""  # empty: the whole fleet's
    message: str  # what is the case
    evidence: tuple[str, ...]  # figures with their windows
    remedy: str  # the command to type, or the profile's key to change
    share: float = 1.0  # of what went wrong in the lane, about how much it explains


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A fleet's or a lane's troubles, the first cause first; none where all is well."""

    fleet: str
    causes: tuple[CauseFound, ...]
    looked_at: tuple[str, ...]  # which figures, in words
    notes: tuple[str, ...] = ()  # what could not be looked at
    unexplained: tuple[str, ...] = ()  # lanes that miss their objective, and no cause was found

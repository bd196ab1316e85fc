"""The durations and counts that decisions on replicas stand on."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.model.reason import ReasonCode

if TYPE_CHECKING:
    from fleetctl.model.observation import ObservedReplica
    from fleetctl.model.replica import Replica

WARM_FAILURES_MAX = 3
# A replica that has served and is to prove that it has recovered: it is warm, so it answers soon or is replaced.
WARM_AGAIN_FAILURES_MAX = 1
WARM_AGAIN_S = 10.0
UNHEALTHY_AFTER_S = 5.0  # /health failing for this long takes a replica out of rotation
GATEWAY_FAILURES_MAX = 3  # in a row at the gateway: out of rotation
UNHEALTHY_MAX = 2  # unhealthy more often than this after recovering: drained and replaced
# Taken out of rotation so often as standing still: the next time it is replaced, as it has answered a longer completion
# in between and stood still all the same.
STALLED_MAX = 1
# Before it is admitted again a replica must have been healthy for so long, each time three times as long as the last.
READMISSION_HOLD_S = 3.0
RECOVER_S_MAX = 60.0  # out of rotation for this long without recovering: ended, however slow its lane may be
# A node that listings do not show and whose engine does not answer is told to end after this: it may yet be there.
MISSING_BELIEVED_S = 30.0
# One reading without a node may be a page that was lost; two, made after its stop or its create, are believed.
ABSENT_READINGS_BELIEVED = 2
ORPHANED_BELIEVED_S = 5.0
STOP_GRACE_S = 20.0  # SIGTERM -> SIGKILL, with nothing in flight; vLLM takes 4-10 s to exit on a busy machine
STOP_GRACE_LATE_S = 3.0  # the same, when its time is up or it is broken
STOP_GRACE_HUNG_S = 0.0  # the same, of one that answers nothing: a stopped process takes no SIGTERM
STOP_AGAIN_S = 20.0  # still there this long after it was told to end: told again; the provider's own deadline if later
DOWN_DRAIN_S = 10.0  # `down` lets in-flight requests run for this long
# A shared resource that cannot be torn down for this long after its first attempt is left with a tombstone. A security
# group, say, is in use until the last node's network interface is gone, which takes minutes.
SHARED_GIVEN_UP_S = 300.0
# `down` waits for so long, or for two listings that take their whole deadline, for one that shows that nothing is left.
UNVERIFIED_S_MIN = 60.0
UNVERIFIED_LISTINGS = 2
# A replica that dies by itself before it has served for three times as long as it took to start, a minute at least, died
# early: one that is replaced again and again would cost more than it serves.
EARLY_DEATH_BOOTS = 3.0
EARLY_DEATH_S_MIN = 60.0
# What an early death costs is its start: while others serve, the next is put off for at most so many starts as measured,
# and for one while nobody does, which at most doubles the time without service.
EARLY_DEATH_BACKOFF_BOOTS = 3.0
BACKOFF_FIRST_S = 2.0
BACKOFF_MAX_S = 120.0
GATEWAY_SILENT_S = 15.0  # alive and not answering: ended, and started afresh
GATEWAY_START_S = 10.0  # a started gateway may be silent for this long


def warm_failures_max(record: Replica) -> int:
    """Return after how many failed warm-up completions a replica is given up."""
    return WARM_FAILURES_MAX if record.is_cold else WARM_AGAIN_FAILURES_MAX


def recoveries_max(code: ReasonCode) -> int:
    """Return how often a replica may recover from what is found wrong with it before it is replaced."""
    return STALLED_MAX if code is ReasonCode.STALLED else UNHEALTHY_MAX


def readmission_hold_s(recoveries: int) -> float:
    """Return for how long a replica that was taken out of rotation so often must be healthy to be admitted again."""
    return READMISSION_HOLD_S * 3.0 ** min(recoveries - 1, UNHEALTHY_MAX) if recoveries > 0 else 0.0


def recovery_limit_s(stall_limit_s: float) -> float:
    """Return how long a replica may be out of rotation without recovering, before it counts as hung and is ended.

    A working engine of its lane is silent for `stall_limit_s` at most, and answers the completion that proves it warm
    within WARM_AGAIN_S: one that takes longer than both together is not about to come back.
    """
    return min(RECOVER_S_MAX, stall_limit_s + WARM_AGAIN_S)


def absence_counts(replica: ObservedReplica, *, listing_ok: bool) -> bool:
    """Whether it is known that a node is not shown: by a current listing, or by answers about this very node."""
    return listing_ok or replica.absent_readings >= ABSENT_READINGS_BELIEVED


def has_proven_itself(record: Replica, now: datetime) -> bool:
    """Whether a replica has served for so long that its end, should it come now, is not an early one."""
    if record.ready_at is None:
        return False
    boot_s = (record.ready_at - record.requested_at).total_seconds()
    return since_s(record.ready_at, now) >= max(EARLY_DEATH_S_MIN, EARLY_DEATH_BOOTS * boot_s)


def backoff_s(failures: int) -> float:
    """Return how long to wait after this many failures in a row: 0, 2, 4, 8, ... seconds, at most two minutes."""
    return 0.0 if failures <= 0 else min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 16))


def early_death_backoff_s(deaths: int, *, boot_s: float, serves: bool) -> float:
    """Return how long to wait after this many early deaths in a row; the first makes none wait."""
    limit_s = boot_s * (EARLY_DEATH_BACKOFF_BOOTS if serves else 1.0)
    return min(backoff_s(deaths - 1), max(BACKOFF_FIRST_S, limit_s))


def since_s(start: datetime | None, now: datetime) -> float:
    """Return the seconds since `start`; 0 when it has not begun."""
    return 0.0 if start is None else max(0.0, (now - start).total_seconds())


def later(now: datetime, seconds: float) -> datetime:
    """Return the instant `seconds` from now."""
    return now + timedelta(seconds=seconds)

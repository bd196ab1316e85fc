"""The degradation ladder: one visible step per lane."""

from __future__ import annotations

from enum import IntEnum


class LadderStep(IntEnum):
    """Steps in the order they are taken; each includes those below it."""

    NORMAL = 0
    PAUSE_BATCH = 1  # on an interruptible lane: its queue holds, nothing is dispatched
    CAP_TOKENS = 2  # max_tokens is capped, and the response header says so
    CAP_CONTEXT = 3
    SPILL = 4  # may use idle replicas of its spill_to lanes
    SHED = 5  # refuse lowest tiers; without tiers: refuse what would wait
    BREAKER = 6  # refuse all new with Retry-After; half-open probes

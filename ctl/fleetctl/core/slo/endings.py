"""How a request may end, and how each ending counts: the one definition of good and of offered.

The gateway's counters and the load client both pass every request through `classify`, which asks the table below.
Offered are the requests that ended as good or as a miss; the share of the good among them is held against the objective.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from fleetctl.model.slo import BreachKind

if TYPE_CHECKING:
    from collections.abc import Mapping


class Ending(StrEnum):
    """How a request ended."""

    COMPLETE = "complete"
    CAPPED = "capped"  # a bound of the server's ended it, and its lane counts that as bad
    INCOMPLETE = "incomplete"  # the stream stopped before its end
    TIMEOUT = "timeout"  # ours, total or stall
    ERROR = "error"  # a 5xx, or no answer at all
    REFUSED = "refused"  # a 429: shed, or no capacity
    REJECTED = "rejected"  # any other 4xx: the client's fault
    CANCELLED = "cancelled"  # the client went away

    @classmethod
    def of_status(cls, status: int) -> Ending:
        """Return how a request ended that was answered with this HTTP status."""
        if status < 300:
            return cls.COMPLETE
        if status == 429:
            return cls.REFUSED
        return cls.ERROR if status >= 500 else cls.REJECTED


class Counting(StrEnum):
    """What an ending says about the lane."""

    BY_LIMITS = "by-limits"  # good, or a miss where a limit was passed
    MISS = "miss"
    UNLESS_LATE = (
        "unless-late"  # not offered, but a miss where a limit had passed: giving up must not look like success
    )
    NOT_OFFERED = "not-offered"  # the client itself was wrong


COUNTED: Final[Mapping[Ending, Counting]] = {
    Ending.COMPLETE: Counting.BY_LIMITS,
    Ending.CAPPED: Counting.MISS,
    Ending.INCOMPLETE: Counting.MISS,
    Ending.TIMEOUT: Counting.MISS,
    Ending.ERROR: Counting.MISS,
    Ending.REFUSED: Counting.MISS,
    Ending.REJECTED: Counting.NOT_OFFERED,
    Ending.CANCELLED: Counting.UNLESS_LATE,
}

# What a miss is called.
MISSES: Final[Mapping[Ending, BreachKind]] = {
    Ending.CAPPED: BreachKind.CAPPED,
    Ending.INCOMPLETE: BreachKind.INCOMPLETE,
    Ending.TIMEOUT: BreachKind.TIMEOUT,
    Ending.ERROR: BreachKind.ERROR,
    Ending.REFUSED: BreachKind.REFUSED,
}

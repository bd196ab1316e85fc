"""What each way in which a replica fails a request means for the request and for the replica."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from fleetctl.core.dispatch.state import RequestEvent

if TYPE_CHECKING:
    from collections.abc import Mapping


class Avoidance(Enum):
    """How far a request keeps away from the replica that failed it."""

    WHILE_ANOTHER_IS_FREE = "while-another-is-free"
    UNTIL_IT_HAS_WAITED = "until-it-has-waited"
    FOR_GOOD = "for-good"


class Retry(Enum):
    """When a request that the client has no part of yet is sent to one more replica."""

    FREELY = "freely"  # no replica has worked on it, so asking the next costs nothing; their number bounds it
    NOW_OR_LATER = "now-or-later"  # within the budget; it waits for a replica if there is none
    TO_A_FREE_SLOT = "to-a-free-slot"  # within the budget, and only to a replica with a free slot now
    TO_ANY_NOW = "to-any-now"  # within the budget, and only to a replica that is there now, full or not


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """One row of the table below."""

    counts: bool  # against the replica: several in a row eject it
    is_answer: bool = False  # the replica works well enough to answer so: whose doing that is, `attribution` tells
    avoids: Avoidance
    retry: Retry
    convicts: bool = False  # the replica does not work at all: even where all are ejected, nobody is sent there
    may_be_death: bool = False  # nothing came any more, as from a replica that has died


CONSEQUENCES: Final[Mapping[RequestEvent, Consequence]] = {
    RequestEvent.UNREACHABLE: Consequence(
        counts=True, avoids=Avoidance.UNTIL_IT_HAS_WAITED, retry=Retry.FREELY, convicts=True
    ),
    # Servers close idle connections at will, so this says nothing yet about the replica; a fresh connection will.
    RequestEvent.STALE_CONNECTION: Consequence(
        counts=False, avoids=Avoidance.WHILE_ANOTHER_IS_FREE, retry=Retry.NOW_OR_LATER, may_be_death=True
    ),
    RequestEvent.CLOSED: Consequence(
        counts=True, avoids=Avoidance.FOR_GOOD, retry=Retry.NOW_OR_LATER, may_be_death=True
    ),
    RequestEvent.PROTOCOL_ERROR: Consequence(counts=True, avoids=Avoidance.FOR_GOOD, retry=Retry.NOW_OR_LATER),
    RequestEvent.STALLED: Consequence(
        counts=True, avoids=Avoidance.FOR_GOOD, retry=Retry.NOW_OR_LATER, convicts=True, may_be_death=True
    ),
    # Its engine works, and has put this stream aside for want of memory: others that it serves would lose by an ejection.
    RequestEvent.PREEMPTED: Consequence(counts=False, avoids=Avoidance.FOR_GOOD, retry=Retry.NOW_OR_LATER),
    # The controller has said it already, and lets the replica back only after a completion: then it may go on there.
    RequestEvent.UNHEALTHY: Consequence(
        counts=False, avoids=Avoidance.UNTIL_IT_HAS_WAITED, retry=Retry.NOW_OR_LATER, may_be_death=True
    ),
    RequestEvent.BUSY: Consequence(counts=False, is_answer=True, avoids=Avoidance.FOR_GOOD, retry=Retry.TO_A_FREE_SLOT),
    RequestEvent.ERROR: Consequence(counts=False, is_answer=True, avoids=Avoidance.FOR_GOOD, retry=Retry.TO_ANY_NOW),
    # Each asks for a longer context than the last, so their number is bounded by how many lengths there are.
    RequestEvent.TOO_LONG: Consequence(counts=False, avoids=Avoidance.FOR_GOOD, retry=Retry.FREELY),
    RequestEvent.REJECTED: Consequence(counts=False, avoids=Avoidance.FOR_GOOD, retry=Retry.TO_ANY_NOW),
}

_BUSY_STATUSES: Final = frozenset((429, 503))
# How engines answer a request that is too long for them, among others: vLLM and SGLang by the first, TGI by the second.
MALFORMED_STATUSES: Final = frozenset((400, 422))
_ERROR_STATUSES: Final = frozenset((424, 500, 502, 504))  # the first: TGI, where generating failed


def failure_of(status: int) -> RequestEvent | None:
    """Return how a replica that answers with this HTTP status fails the request. None: the answer is the client's."""
    if status in _BUSY_STATUSES:
        return RequestEvent.BUSY
    if 300 <= status < 400:
        # No engine's API redirects. Nobody here follows one, and a client that did would be led wherever the engine likes.
        return RequestEvent.PROTOCOL_ERROR
    return RequestEvent.ERROR if status in _ERROR_STATUSES else None

"""Which replicas may take a request: what no profile can switch off."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fleetctl.core.routing.candidate import Candidate


def usable(
    candidates: Iterable[Candidate],
    *,
    now_s: float,
    tried: Collection[str] = (),
    beyond_limit: bool = False,
    must_continue: bool = False,
) -> list[Candidate]:
    """Return those in rotation, not tried yet, not ejected and with a free slot.

    An ejected one whose time is over takes one request at a time until it has answered. `beyond_limit` drops the slot
    limit: for requests already accepted whose replica died, which the engine's own queue can hold better than nobody.
    `must_continue` asks for replicas that can go on with a stream another one lost.
    """
    found = [
        c
        for c in candidates
        if c.in_rotation
        and (c.in_flight < c.concurrency_max or beyond_limit)
        and (not c.ejected_until_s or (c.ejected_until_s <= now_s and not c.in_flight))
    ]
    if tried or must_continue:
        return [c for c in found if c.id not in tried and (c.continues or not must_continue)]
    return found

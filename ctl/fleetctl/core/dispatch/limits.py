"""Every bound that dispatching keeps and the routing table does not set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.core.dispatch.request import ActiveRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchLimits:
    """How often a request is tried again, and how long it waits for a replica it had lost."""

    # Of a request that replicas have seen and whose client has nothing of an answer. A poison request must not visit
    # them all; one whose replicas died under it may just be unlucky, twice if many die.
    resends_max: int = 1
    resends_lost_max: int = 2
    # Of one stream. One that brings a replica down each time must not visit them all, and without a token in between
    # three are enough; a long stream may meet several failures that are none of its doing.
    continuations_max: int = 10
    fruitless_continuations_max: int = 3
    # A displaced request of which the client has nothing waits for a replica as long as its lane lets any request wait.
    # It waits this long, where that is longer, once a replacement is on its way that is expected within it.
    displaced_wait_s: float = 30.0
    # A stream whose client has a part of its answer waits, once a replacement is on its way that is expected within it,
    # for as long as an engine takes to load: twenty seconds to minutes (a vLLM on a busy machine took two, 2026-11-22).
    # Until one is announced it waits as long as it would without that part, and for `displaced_wait_s` at least.
    continued_wait_s: float = 300.0

    def let_move(self, request: ActiveRequest, *, may_be_death: bool = True) -> bool:
        """Whether one more replica may be asked after its own failed it, as one that died does or in another way."""
        if request.is_committed:
            has_many_left = request.continuations < self.continuations_max
            return has_many_left and request.fruitless < self.fruitless_continuations_max
        return request.resends < (self.resends_lost_max if may_be_death else self.resends_max)

    def displaced_max_wait_s(self, request: ActiveRequest) -> float:
        """Return how long a request waits for another replica, from when it lost its own."""
        route = request.lane.route
        announced_wait_s = self.continued_wait_s if request.must_continue else self.displaced_wait_s
        if route.replacement_s is not None and route.replacement_s <= announced_wait_s:
            return max(route.max_wait_s, announced_wait_s)
        return max(route.max_wait_s, self.displaced_wait_s) if request.must_continue else route.max_wait_s

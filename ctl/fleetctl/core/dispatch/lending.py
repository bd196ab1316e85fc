"""Which replicas of other lanes may take a request: a lane is a promise, not a wall, and the owner comes first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.core.routing.usable import usable

if TYPE_CHECKING:
    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.routing.candidate import Candidate

# Of the owner's budget, what a replica that its own requests need may be taken up by, another lane's prompt and a mean
# one of its own together. In simulations .3 refused a lane without replicas 1.8 % of its requests, .7 refuses .4 %.
KEPT_SHARE = 0.7


def lent(request: ActiveRequest, owner: DispatchLane[ActiveRequest], now_s: float) -> list[Candidate]:
    """Return the replicas of another lane that this request may use: both lanes' predicted TTFT stays in its budget.

    The owner keeps as many replicas as its own requests need; of those, other lanes get only what it does not feel.
    """
    lane = request.lane
    known = lane.borrowed.get(owner.route.name)
    if not owner.candidates or (known is not None and not known.is_worth_it(now_s)):
        return []
    is_pressed, own_s = owner.demand.is_pressed(now_s), owner.candidates[0].line.own_s(owner.demand.mean_tokens)
    kept = owner.demand.replicas(now_s, own_s=own_s, budget_s=owner.budget_s)
    left_s = lane.budget_s - (now_s - request.stopwatch.started_s)
    found = []
    prompt, avoided = request.prompt, request.avoided
    pool = usable(owner.candidates, now_s=now_s, prompt=prompt, tried=avoided, must_continue=request.must_continue)
    for candidate in pool:
        if candidate.in_flight >= candidate.lent_max:
            continue
        taken_s = candidate.line.wait_s(now_s) + candidate.line.own_s(request.prompt.uncached(candidate.id))
        if taken_s <= left_s and (
            not (is_pressed or owner.is_kept(candidate, kept))
            or taken_s + candidate.line.own_s(owner.demand.mean_tokens) <= KEPT_SHARE * owner.budget_s
        ):
            found.append(candidate)
    if math.isinf(lane.budget_s):
        return [c for c in found if not c.line.count]
    return found

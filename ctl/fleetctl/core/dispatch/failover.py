"""Whether somebody else could take a request that its replica fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.dispatch.failure import CONSEQUENCES

if TYPE_CHECKING:
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.dispatch.routes import RoutingState


def is_held_elsewhere(routes: RoutingState, request: ActiveRequest, more_than: int) -> bool:
    """Whether some replica in rotation holds more than so many tokens and may take this request."""
    lane = request.lane
    pools = [lane.candidates]
    if not request.is_lane_named:
        pools += [other.candidates for other in routes.lanes.values()]
    return any(c.in_rotation and c.max_model_len > more_than for pool in pools for c in pool)


def has_other(routes: RoutingState, request: ActiveRequest) -> bool:
    """Whether a replica in rotation, other than its own, could take a request."""
    own = request.replica.candidate if request.replica is not None else None
    pools = (request.lane.candidates, *routes.other_pools(request))
    return any(
        c is not own
        and c.in_rotation
        and not c.ejected_until_s
        and c.id not in request.avoided
        and c.holds(request.needed_tokens)
        and (c.continues or not request.is_committed)
        for pool in pools
        for c in pool
    )


def could_continue(request: ActiveRequest) -> bool:
    """Whether waiting makes sense for a lost stream: its lane, or one it may spill to, has engines that can go on.

    Replicas that failed it count, in the table or not, for the ones that take their place will be of their kind.
    """
    lane = request.lane
    if any(c.continues for c in lane.candidates):
        return True
    if not lane.candidates and request.lane_continued:
        return True
    if any(c.continues for owner in lane.lenders for c in owner.candidates):
        return True
    return lane.may_spill and any(c.continues for pool in lane.spill for c in pool)


def recovered(routes: RoutingState, request: ActiveRequest) -> frozenset[str]:
    """Return the replicas that fell silent on a stream that waits, and have answered others in whole since.

    A pause of a machine, or a connection that was cut on its way, is over sooner than another replica is loaded. Whether the
    stream itself is what silences them, its continuations without a token between them bound.
    """
    failure = request.attempt.failure if request.attempt is not None else None
    if not request.must_continue or failure is None or not CONSEQUENCES[failure].may_be_death:
        return frozenset()
    replicas = routes.replicas
    return frozenset(
        each
        for each in request.avoided
        if each in replicas
        and replicas[each].heard_s > request.displaced_s
        and not replicas[each].breaks
        and not replicas[each].candidate.ejected_until_s
    )

"""Gives a lane the tiers of a routing table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.admission.queue import LaneQueue
from fleetctl.core.fairness.lane_tiers import LaneTiers
from fleetctl.core.fairness.queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.model.tiers import RouteTier


def hold_to_tiers(lane: DispatchLane[ActiveRequest], tiers: Sequence[RouteTier], now_s: float) -> None:
    """Take over a table's tiers; those who wait keep their place in time, and go on in the tier of the same name."""
    if not tiers and lane.tiers is None:
        return
    before = lane.tiers.all if lane.tiers is not None else ()
    names = [tier.name for tier in tiers]
    returned = lane.former_tiers.returned(names, now_s)
    lane.former_tiers.retire((tier for tier in before if tier.spec.name not in names), now_s)
    names_before = [tier.spec.name for tier in before]
    if not tiers:
        lane.tiers = None
    elif lane.tiers is None:
        lane.tiers = LaneTiers(tiers, lane.route, now_s, returned)
    else:
        lane.tiers.apply(tiers, lane.route, now_s, returned)
    if names_before != names:
        lane.queue, lane.late = _rehoused(lane, lane.queue, now_s), _rehoused(lane, lane.late, now_s)


def _rehoused(
    lane: DispatchLane[ActiveRequest], queue: LaneQueue[ActiveRequest], now_s: float
) -> LaneQueue[ActiveRequest]:
    tiers = lane.tiers
    waiting = queue.tickets()
    found: LaneQueue[ActiveRequest] = (
        FairQueue(queue.size_max, tiers) if tiers is not None else LaneQueue(queue.size_max)
    )
    found.order = queue.order
    for ticket in waiting:
        request = ticket.item
        queue.cancel(ticket)
        name = request.tier.spec.name if request.tier is not None else ""
        request.tier = (tiers.named(name) or tiers.default) if tiers is not None else None
        request.queue = found
        request.ticket = found.rejoin(request, since_s=ticket.since_s, deadline_s=ticket.deadline_s)
    return found

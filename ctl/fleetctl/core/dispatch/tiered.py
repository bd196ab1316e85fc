"""Dispatch, queue or refuse in a lane that has tiers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.admission.admit import Admission, LaneLoad, admit
from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.dispatch.state import RequestEvent
from fleetctl.core.dispatch.tier_notes import note_arrival
from fleetctl.core.fairness.queue import FairQueue

if TYPE_CHECKING:
    from fleetctl.core.dispatch.assignment import Assignment
    from fleetctl.core.dispatch.endings import Endings
    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.dispatch.routes import RoutingState
    from fleetctl.core.fairness.lane_tiers import LaneTiers
    from fleetctl.core.fairness.tier import LaneTier


class TieredAdmission:
    """Admits by what each tier, and each client of it, is due."""

    def __init__(self, routes: RoutingState, assignment: Assignment, endings: Endings) -> None:
        self._routes = routes
        self._assignment = assignment
        self._endings = endings

    def submit(self, request: ActiveRequest, tiers: LaneTiers, now_s: float) -> None:
        """Dispatch, queue or refuse a request that arrives now."""
        lane = request.lane
        tier = request.tier = request.tier or tiers.default
        is_retry = note_arrival(request, now_s)
        is_held = lane.degradation.holds_queue
        degradation = lane.degradation if is_held else tiers.degradation(tier, now_s)
        goes_first = not is_held and _goes_before(lane.queue, tier, request.client, now_s)
        found = self._routes.pick(request, now_s) if goes_first else None
        late_s = None if found is not None else self._routes.late_s(request, now_s)
        is_probe = degradation.breaks and lane.probe.lets_through(now_s)
        may_wait, victim = _place(lane.queue, tier, request.client)
        load = _load(lane, tiers, request, now_s, has_slot=found is not None, late_s=late_s, may_wait=may_wait)
        answer = admit(load, degradation, prompt_tokens=request.prompt.prompt_tokens, is_probe=is_probe)
        if is_retry and found is None and _is_over_budget(tier, request.client, now_s):
            answer = Refusal.RETRY_BUDGET
        if answer is Admission.DISPATCH and found is not None:
            self._assignment.dispatch(request, found, now_s)
        elif isinstance(answer, Refusal):
            if answer is Refusal.QUEUE_FULL and not lane.queue.is_full:
                answer = Refusal.TIER_SHARE
            self._refuse(request, tiers, answer, RequestEvent.REFUSED, now_s, predicted_s=load.wait_s)
        else:
            if victim is not None and late_s is None:
                self._refuse(victim, tiers, Refusal.TIER_SHARE, RequestEvent.EXPIRED, now_s)
            request.queued_behind = load.queued
            self._assignment.enqueue(request, now_s, is_late=late_s is not None)

    def _refuse(
        self,
        request: ActiveRequest,
        tiers: LaneTiers,
        refusal: Refusal,
        event: RequestEvent,
        now_s: float,
        *,
        predicted_s: float | None = None,
    ) -> None:
        if request.tier is not None:
            request.standing = tiers.standing(request.tier, request.client, now_s)
        self._endings.refuse(request, refusal, event, predicted_s=predicted_s)


def _goes_before(queue: object, tier: LaneTier, client: int, now_s: float) -> bool:
    return not isinstance(queue, FairQueue) or queue.goes_before(tier, client, now_s)


def _place(queue: object, tier: LaneTier, client: int) -> tuple[bool, ActiveRequest | None]:
    """Return whether one more of a tier may wait, and who would have to leave for it."""
    if not isinstance(queue, FairQueue):
        return True, None
    if tier.waiting >= max(1.0, tier.spec.max_share * queue.size_max):
        return False, None
    if not queue.is_full:
        return True, None
    ticket = queue.giving_way_to(tier, client)
    return (True, ticket.item) if ticket is not None else (False, None)


def _load(  # noqa: PLR0913  # all that admission decides on
    lane: DispatchLane[ActiveRequest],
    tiers: LaneTiers,
    request: ActiveRequest,
    now_s: float,
    *,
    has_slot: bool,
    late_s: float | None,
    may_wait: bool,
) -> LaneLoad:
    """Return what admission decides on, as it is for this request: who goes before it, and its tier's part of the rate."""
    tier = request.tier or tiers.default
    ahead = 0
    if not has_slot and isinstance(lane.queue, FairQueue):
        ahead = lane.queue.ahead_of(tier, request.client, now_s)
    drain_rps = lane.service.drain_rate_rps(lane.in_flight)
    share = tiers.rate_share(tier, drain_rps, now_s) if drain_rps else 1.0
    return LaneLoad(
        late_s=late_s,
        waits_late=lane.waits_late,
        queued_late=lane.late.size,
        queued=ahead,
        queue_max=lane.queue.size_max + ahead if may_wait else 0,
        max_wait_s=lane.max_wait_s,
        has_slot=has_slot,
        drain_rate_rps=drain_rps * share if drain_rps else None,
    )


def _is_over_budget(tier: LaneTier, client: int, now_s: float) -> bool:
    """Whether more of a client's requests are retries than its tier may have."""
    budget = tier.spec.retry_budget
    return budget is not None and tier.clients.of(client).retry_share(now_s) > budget

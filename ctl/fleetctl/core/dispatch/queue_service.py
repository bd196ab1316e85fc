"""Serves who waits: one queue after another, each in its order, for as long as somebody can take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.dispatch.state import RequestEvent
from fleetctl.core.fairness.queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.core.admission.queue import LaneQueue
    from fleetctl.core.dispatch.endings import Endings
    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.dispatch.routes import RoutingState
    from fleetctl.core.routing.candidate import Candidate


class QueueService:
    """`dispatch` is called with each request that leaves a queue for a replica."""

    def __init__(
        self,
        clock: Callable[[], float],
        routes: RoutingState,
        endings: Endings,
        dispatch: Callable[[ActiveRequest, Candidate, float], None],
    ) -> None:
        self._clock = clock
        self._routes = routes
        self._endings = endings
        self._dispatch = dispatch

    def serve(self, lane: DispatchLane[ActiveRequest], queue: LaneQueue[ActiveRequest]) -> bool:
        """Dispatch who waits in this queue while somebody can take them; return whether it is empty."""
        if isinstance(queue, FairQueue):
            return self._serve_fairly(lane, queue)
        while (request := queue.peek()) is not None:
            now_s = self._clock()
            found = self._routes.pick(request, now_s)
            if found is not None:
                queue.pop()
                request.ticket = None
                self._dispatch(request, found, now_s)
            elif queue is lane.queue and self._routes.late_s(request, now_s) is not None:
                self._give_up_hurry(request, now_s)
            else:
                return False
        return True

    def _serve_fairly(self, lane: DispatchLane[ActiveRequest], queue: FairQueue[ActiveRequest]) -> bool:
        """Do the same where another tier's next may be served although the first's cannot: less is kept free for it."""
        while queue.size:
            now_s = self._clock()
            for ticket in queue.heads(now_s):
                request = ticket.item
                found = self._routes.pick(request, now_s)
                if found is not None:
                    queue.take(ticket)
                    request.ticket = None
                    self._dispatch(request, found, now_s)
                    break
                if queue is lane.queue and self._routes.late_s(request, now_s) is not None:
                    self._give_up_hurry(request, now_s)
                    break
            else:
                return False
        return True

    def _give_up_hurry(self, request: ActiveRequest, now_s: float) -> None:
        """Let one that cannot be in time any more wait behind those who can, where its lane waits so long, or end it."""
        lane, ticket = request.lane, request.ticket
        request.dequeue()
        if ticket is None or not lane.waits_late or lane.late.is_full:
            self._endings.refuse(request, Refusal.PREDICTED_WAIT, RequestEvent.EXPIRED)
            return
        request.queue = lane.late
        request.ticket = lane.late.offer(request, now_s=now_s, wait_max_s=ticket.deadline_s - now_s)

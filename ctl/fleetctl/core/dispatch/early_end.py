"""Ends requests before their replicas do: with what there is of the answer where a bound says so, else as timed out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.dispatch.state import RequestEvent
from fleetctl.core.slo.endings import Ending
from fleetctl.model.generation import BoundReason

if TYPE_CHECKING:
    from fleetctl.core.dispatch.assignment import Assignment
    from fleetctl.core.dispatch.endings import Endings
    from fleetctl.core.dispatch.request import ActiveRequest


class EarlyEnds:
    """Ends them by the clock, and whenever the shell finds that an answer has gone on for long enough."""

    def __init__(self, assignment: Assignment, endings: Endings) -> None:
        self._assignment = assignment
        self._endings = endings

    def end(self, request: ActiveRequest, reason: BoundReason) -> None:
        """Have the replica stop, and the client's answer end in due form; it has had a first token."""
        replica = request.replica
        request.exchange.cancel()
        request.bounded_by = reason
        request.exchange.end_early(reason)
        self._assignment.release(request, failed=False)
        self._endings.finish(request, RequestEvent.BOUNDED, Ending.COMPLETE)
        if replica is not None:
            replica.count(request.stopwatch)

    def check(self, request: ActiveRequest, now_s: float, request_timeout_s: float) -> bool:
        """End a request that has taken as long as it may; return whether it was ended."""
        bounds, began_s = request.bounds, request.generating_s
        most_s = bounds.max_duration_s if bounds is not None else None
        if most_s is not None and began_s is not None and now_s - began_s > most_s:
            self.end(request, BoundReason.MAX_DURATION)
            return True
        # From its first dispatch, however many replicas it has had: the wait before that is the lane's to bound.
        begun_s = request.stopwatch.started_s + (request.stopwatch.wait_s or 0.0)
        if now_s - begun_s <= request_timeout_s:
            return False
        request.exchange.cancel()
        self._assignment.release(request, failed=False)
        self._endings.time_out(request)
        return True

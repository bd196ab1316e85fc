"""The ways in which a request ends without a replica's whole answer, and what every end has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.dispatch.state import RequestEvent
from fleetctl.core.dispatch.tier_notes import note_end
from fleetctl.core.slo.endings import Ending
from fleetctl.model.generation import CappedIs

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.core.admission.tokens import TokenRatio
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.model.generation import BoundReason

_TIMEOUTS = frozenset((RequestEvent.STALLED, RequestEvent.PREEMPTED))


class Endings:
    """Ends requests: has the response's end written, counts the request, then releases it."""

    def __init__(self, clock: Callable[[], float], ratio: TokenRatio) -> None:
        # Those that a replica has had at least once, and are not over; in order, so that a simulation can be repeated.
        self.active: dict[ActiveRequest, None] = {}
        self._clock = clock
        self._ratio = ratio
        # Follows conversations; None: nobody does. Prompts of less than a block have no prefix to speak of.
        self.on_end: Callable[[ActiveRequest, float], None] | None = None

    def refuse(
        self, request: ActiveRequest, refusal: Refusal, reason: RequestEvent, *, predicted_s: float | None = None
    ) -> None:
        """Turn a request away; how that counts, its status says. `predicted_s` is what it would have waited."""
        now_s = self._clock()
        return_s = request.lane.return_s(request.client, now_s, request.tier)
        request.refused = refusal, return_s, predicted_s
        request.exchange.refuse(refusal, retry_after_s=return_s)
        if refusal.status == 429:
            request.stopwatch.refused(now_s, refusal)
            self.finish(request, reason, None)
        else:
            self.finish(request, reason, Ending.of_status(refusal.status))

    def give_up(self, request: ActiveRequest, failure: RequestEvent) -> None:
        """Tell a client that has got nothing yet how the last replica failed it: no other is asked."""
        if failure is RequestEvent.BUSY:
            self.refuse(request, Refusal.ENGINES_BUSY, RequestEvent.GIVEN_UP)
        elif failure is RequestEvent.ERROR:
            request.exchange.pass_on()
            self.finish(request, RequestEvent.GIVEN_UP, Ending.ERROR)
        else:
            request.exchange.fail(failure)
            self.finish(request, RequestEvent.GIVEN_UP, Ending.TIMEOUT if failure in _TIMEOUTS else Ending.ERROR)

    def break_stream(self, request: ActiveRequest, reason: RequestEvent) -> None:
        """End an answer of which the client has a part."""
        request.exchange.break_stream(reason)
        self.finish(request, reason, Ending.TIMEOUT if reason is RequestEvent.TIMED_OUT else Ending.INCOMPLETE)

    def expire(self, request: ActiveRequest) -> None:
        """End a request that has waited as long as it may."""
        if request.is_committed:
            self.break_stream(request, RequestEvent.EXPIRED)
        elif request.lane.has_replica and request.displaced_until_s is None:
            self.refuse(request, Refusal.MAX_WAIT, RequestEvent.EXPIRED)
        elif request.lane.holds_from_zero and request.displaced_until_s is None:
            self.refuse(request, Refusal.FROM_ZERO, RequestEvent.EXPIRED)
        else:
            self.refuse(request, Refusal.NO_REPLICA, RequestEvent.EXPIRED)

    def time_out(self, request: ActiveRequest) -> None:
        """End a request that has been at its replica for too long, and has given its slot back."""
        if request.is_committed:
            self.break_stream(request, RequestEvent.TIMED_OUT)
        else:
            request.exchange.fail(RequestEvent.TIMED_OUT)
            self.finish(request, RequestEvent.TIMED_OUT, Ending.TIMEOUT)

    def finish(self, request: ActiveRequest, reason: RequestEvent, ending: Ending | None) -> None:
        """Count a request whose response is written, unless it was shed (None), and let go of it."""
        request.move(reason)
        if request.bounded_by is not None and ending is Ending.COMPLETE:
            ending = self._bounded(request, request.bounded_by)
        if request.ticket is not None:
            request.dequeue()
        self.active.pop(request, None)
        used = request.prompt_tokens_used
        if used is not None and not request.continuations:
            self._ratio.learn(request.size, prompt_tokens=used)
        if ending is not None:
            # Without a wait no replica has seen its prompt.
            seen = request.prompt.prompt_tokens if request.stopwatch.wait_s is not None else 0
            now_s = self._clock()
            if request.is_paused:
                request.stopwatch.resumed(now_s)  # a client that does not read has no stall
            request.stopwatch.stop(
                now_s,
                ending,
                is_stream=request.is_stream,
                prompt_tokens=used if used is not None else seen,
                output_tokens_uncounted=request.output_tokens_uncounted,
            )
        if self.on_end is not None and request.hashes:
            self.on_end(request, self._clock())
        if request.tier is not None:
            note_end(request, self._clock())
        request.exchange.over()

    def _bounded(self, request: ActiveRequest, by: BoundReason) -> Ending:
        """Count an answer that a bound has ended; return how it counts."""
        request.lane.bounded[by] += 1
        is_bad = request.bounds is not None and request.bounds.capped_is is CappedIs.BAD
        return Ending.CAPPED if is_bad else Ending.COMPLETE

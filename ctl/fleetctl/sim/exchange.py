"""One request's bytes under virtual time: its client on one side, a simulated engine on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fleetctl.core.admission.ladder import capped_tokens
from fleetctl.core.dispatch.ports import Resumption
from fleetctl.core.dispatch.state import RequestEvent, RequestState
from fleetctl.core.slo.endings import Ending
from fleetctl.sim.gap_counter import GapCounter
from fleetctl.sim.sequence import SimulatedSequence

if TYPE_CHECKING:
    from fleetctl.core.admission.refusal import Refusal
    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.load.trace import Arrival
    from fleetctl.model.generation import BoundReason
    from fleetctl.sim.engine import SimulatedEngine
    from fleetctl.sim.event_heap import EventHeap, ScheduledCall

# A refused or reset connection inside a zone.
_UNREACHABLE_S = 0.001


class ExchangeWorld(Protocol):
    """What an exchange needs to know of the world, and tells it."""

    heap: EventHeap
    dispatcher: Dispatcher
    hop_s: float  # gateway to engine and back

    def engine(self, replica_id: str) -> SimulatedEngine | None:
        """Return a replica's engine; None: nothing listens there."""
        ...

    def refused(self, exchange: SimulatedExchange, refusal: Refusal, retry_after_s: float) -> None:
        """Note that a client was turned away."""
        ...

    def over(self, exchange: SimulatedExchange) -> None:
        """Note that a request has ended."""
        ...


class SimulatedExchange:
    """An ExchangePort whose replica is computed; `made` is how many tokens the client has got."""

    __slots__ = (
        "_due", "_engine", "_noted", "_noted_over", "_sequence", "_world", "attempt", "made", "output_tokens", "request", "row", "times_over",
    )  # fmt: skip

    request: ActiveRequest

    def __init__(self, world: ExchangeWorld, row: Arrival, attempt: int) -> None:
        self._world = world
        self.row = row
        self.attempt = attempt  # 0: the first
        self.output_tokens = row.output_tokens
        self.made = 0
        self.times_over = 0
        self._sequence: SimulatedSequence | None = None
        self._engine: SimulatedEngine | None = None
        self._noted = self._noted_over = 0  # tokens of this replica, and gaps over the limit between them
        self._due: ScheduledCall | None = None

    @property
    def served_tokens(self) -> int:
        """Return the tokens that were computed for its client: those of its prompt that were not cached, and of the answer."""
        stopwatch = self.request.stopwatch
        made = stopwatch.token_count or self.request.output_tokens_uncounted
        return self.row.prompt_tokens + made if made else 0

    # What the dispatcher asks for.

    def send(self, replica_id: str) -> None:
        """Send the request, or what is left of it, to this replica."""
        world, request = self._world, self.request
        engine = self._engine = world.engine(replica_id)
        if engine is None:
            self._due = world.heap.at(world.heap.now_s + _UNREACHABLE_S, self._unreachable)
            return
        if not self.made:
            degradation = request.tier.degradation if request.tier is not None else request.lane.degradation
            cap = capped_tokens(self.output_tokens, degradation.max_tokens)
            self.output_tokens = self.output_tokens if cap is None else max(1, cap)
        world.dispatcher.connected(request)
        counter = None
        self._noted = self._noted_over = 0
        if request.is_stream:
            lane = request.lane.route.name
            counter = engine.gap_counters.get(lane)
            if counter is None:
                counter = engine.gap_counters[lane] = GapCounter(request.lane.accounts)
        self._sequence = SimulatedSequence(
            self,
            request.prompt.uncached(replica_id) + self.made,
            self.output_tokens - self.made,
            gap_counter=counter,
            priority=request.turn.rank if request.turn is not None else 0,
        )
        before_s = world.hop_s + engine.frontend_s
        if before_s:
            self._due = world.heap.at(world.heap.now_s + before_s, self._arrive)
        else:
            engine.add(self._sequence)

    def cancel(self) -> None:
        """Break off what is under way at the replica."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._take_stock()
        if self._sequence is not None and self._engine is not None:
            self._engine.abort(self._sequence)
        self._sequence = None

    def refuse(self, refusal: Refusal, *, retry_after_s: float) -> None:
        """Tell the client that it is turned away, why, and when to come back."""
        self._world.refused(self, refusal, retry_after_s)

    def fail(self, reason: RequestEvent) -> None:
        """Tell a client that has got nothing yet how its request failed."""

    def pass_on(self) -> None:
        """Give the client what the last replica answered, an error though it is."""

    def resumption(self, *, may_continue: bool) -> Resumption:
        """Say whether a lost stream can go on."""
        if self.made >= self.output_tokens:
            return Resumption.ONLY_END_MISSING
        return Resumption.POSSIBLE if may_continue else Resumption.UNLAWFUL

    def end_stream(self) -> None:
        """Write the end of a stream that lacked only that."""

    def end_early(self, reason: BoundReason) -> None:
        """Write the end of an answer that its replica was not done with."""
        if not self.request.is_stream:
            self.request.output_tokens_uncounted = self.made

    def break_stream(self, reason: RequestEvent) -> None:
        """End an answer the client has part of, so that no client takes it for whole."""

    def over(self) -> None:
        """Let go of the client: the request has ended."""
        self.times_over += 1
        self._world.over(self)

    # What the engine says.

    def first_token(self, now_s: float) -> None:
        """Pass on the first token of this replica."""
        request = self.request
        request.heard_s = now_s
        if not request.is_stream:
            # The clock on its answer starts here, which a gateway sees because it asks the engine for a stream.
            request.generating_s = request.generating_s or now_s
            return
        request.has_answer = True
        request.stopwatch.tokens(now_s, 1)
        self._world.dispatcher.first_token(request, now_s)
        if request.state is RequestState.SENT:
            self._world.dispatcher.passed_on(request)

    def finished(self, now_s: float) -> None:
        """End the answer."""
        request = self.request
        self._take_stock()
        self._sequence = None
        request.heard_s = now_s
        request.has_answer = True
        if not request.is_stream:
            request.output_tokens_uncounted = self.output_tokens
        self._world.dispatcher.answered(request, Ending.COMPLETE)

    def heard(self, now_s: float) -> None:
        """Note the tokens that have come by now, though none of them was passed on by itself; its engine is settled."""
        request = self.request
        if request.is_stream and self._sequence is not None and self._engine is not None:
            request.heard_s = now_s
            self._note_progress(self._sequence, self._engine)

    def lost(self) -> None:
        """Note that the connection to the replica broke: its process has ended."""
        self._take_stock()
        self._sequence = None
        self._world.dispatcher.failed(self.request, RequestEvent.CLOSED)

    def _unreachable(self) -> None:
        self._due = None
        self._world.dispatcher.failed(self.request, RequestEvent.UNREACHABLE)

    def _arrive(self) -> None:
        self._due = None
        if self._engine is None or self._sequence is None:
            return
        if self._engine.is_dead:
            self.lost()
        else:
            self._engine.add(self._sequence)

    def _take_stock(self) -> None:
        """Note the tokens that the client has got of this replica since the last look."""
        sequence, engine = self._sequence, self._engine
        if sequence is None or engine is None or not self.request.is_stream:
            return
        engine.settle()
        self._note_progress(sequence, engine)

    def _note_progress(self, sequence: SimulatedSequence, engine: SimulatedEngine) -> None:
        made, gaps_over, last_s = sequence.progress(engine.steps)
        more = made - (self._noted or 1)  # the first token was noted as it came
        if more > 0:
            late = gaps_over - self._noted_over
            self.request.stopwatch.more_tokens(last_s or engine.stepped_s, more, gaps_over=late)
            self._noted_over = gaps_over
        self.made += made - self._noted
        self._noted = made

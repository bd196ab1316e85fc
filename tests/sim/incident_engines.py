"""The engines of an incident, that can be slowed, hung and killed, and the streams they serve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.core.dispatch.ports import Resumption
from fleetctl.core.dispatch.request import ActiveRequest
from fleetctl.core.dispatch.state import RequestEvent, RequestState
from fleetctl.core.routing.candidate import PromptLoad
from fleetctl.core.slo.endings import Ending

if TYPE_CHECKING:
    from fleetctl.core.admission.refusal import Refusal
    from fleetctl.model.generation import BoundReason
    from tests.dispatch.event_heap import Due
    from tests.sim.incidents import World

LANE = "short"
NETWORK_S = 0.001  # between gateway and client


@dataclass(slots=True)
class Engine:
    """One replica's process."""

    slowness: float = 1.0
    token_slowness: float = 1.0  # from the second token on
    is_hung: bool = False
    is_dead: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)  # until it no longer hangs
    streams: dict[Stream, None] = field(default_factory=dict)  # in the order they came


class Stream:
    """One request's exchange, and its client."""

    def __init__(self, world: World, tokens: int) -> None:
        self._world = world
        self._tokens = tokens
        self._due: Due | None = None
        self._engine: Engine | None = None
        now_s = world.heap.now_s
        self._watch = world.client.begin(LANE, now_s, is_stream=True)
        self.request = ActiveRequest(
            self, world.dispatcher.routes.lanes[LANE], PromptLoad(100, {}), [], now_s, is_stream=True
        )
        world.dispatcher.submit(self.request)

    # At the engine.

    def send(self, replica_id: str) -> None:
        world = self._world
        engine = self._engine = world.engines[replica_id]
        if engine.is_dead:
            self._later(0.001, lambda: world.dispatcher.failed(self.request, RequestEvent.UNREACHABLE))
            return
        world.dispatcher.connected(self.request)
        engine.streams[self] = None
        straggles = world.factor_of_stragglers if world.dice.random() < world.share_of_stragglers else 1.0
        self._later(world.dice.uniform(0.05, 0.15) * engine.slowness * straggles, self._first)

    def _first(self) -> None:
        if self._held(self._first):
            return
        dispatcher, now_s = self._world.dispatcher, self._world.heap.now_s
        self.request.has_answer = True
        self.request.heard_s = now_s
        self.request.stopwatch.tokens(now_s, 1)
        dispatcher.first_token(self.request, now_s)
        dispatcher.passed_on(self.request)
        self._watch.tokens(now_s + NETWORK_S, 1)
        self._go_on()

    def _next(self) -> None:
        if self._held(self._next):
            return
        now_s = self._world.heap.now_s
        self.request.heard_s = now_s
        self.request.stopwatch.tokens(now_s, 1)
        self._watch.tokens(now_s + NETWORK_S, 1)
        self._tokens -= 1
        if self._tokens > 0:
            self._go_on()
            return
        self._leave_engine()
        self._end(Ending.COMPLETE)
        self._world.dispatcher.answered(self.request, Ending.COMPLETE)

    def _go_on(self) -> None:
        slowness = self._engine.slowness * self._engine.token_slowness if self._engine else 1.0
        self._later(self._world.dice.uniform(0.015, 0.03) * slowness, self._next)

    def _held(self, then: Callable[[], None]) -> bool:
        if self._engine is None or not self._engine.is_hung:
            return False
        self._engine.waiting.append(then)
        return True

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._due = self._world.heap.at(self._world.heap.now_s + delay_s, call)

    def lose(self) -> None:
        """Lose the engine's connection."""
        self.cancel()
        self._world.dispatcher.failed(self.request, RequestEvent.CLOSED)

    def _leave_engine(self) -> None:
        if self._engine is not None:
            self._engine.streams.pop(self, None)
            self._engine.waiting = [w for w in self._engine.waiting if getattr(w, "__self__", None) is not self]
            self._engine = None

    # At the client.

    def _end(self, ending: Ending) -> None:
        now_s = self._world.heap.now_s + NETWORK_S
        self._world.client.end(self._watch, now_s, ending, is_stream=True, message="")

    # ExchangePort.

    def cancel(self) -> None:
        if self._due is not None:
            self._due.cancel()
        self._leave_engine()

    def refuse(self, refusal: Refusal, *, retry_after_s: float) -> None:
        if refusal.status == 429:
            now_s = self._world.heap.now_s + NETWORK_S
            self._world.client.end(self._watch, now_s, Ending.REFUSED, is_stream=True, message=refusal)
        else:
            self._end(Ending.ERROR)

    def fail(self, reason: RequestEvent) -> None:
        # What a client sees of it is the status: 502 or 504.
        self._end(Ending.ERROR)

    def pass_on(self) -> None:
        self._end(Ending.ERROR)

    def resumption(self, *, may_continue: bool) -> Resumption:
        return Resumption.UNLAWFUL

    def end_stream(self) -> None:
        self._end(Ending.COMPLETE)

    def end_early(self, reason: BoundReason) -> None:
        self._end(Ending.COMPLETE)

    def break_stream(self, reason: RequestEvent) -> None:
        self._end(Ending.INCOMPLETE)

    def over(self) -> None:
        assert self.request.state is RequestState.OVER

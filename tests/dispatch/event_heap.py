"""Drives a Dispatcher by a heap of events: no sockets, no event loop, no clock but the heap's."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from fleetctl.core.admission.return_line import RETURN_S_MAX
from fleetctl.core.dispatch.dispatcher import Dispatcher
from fleetctl.core.dispatch.limits import DispatchLimits
from fleetctl.core.dispatch.ports import Resumption
from fleetctl.core.dispatch.request import ActiveRequest
from fleetctl.core.dispatch.state import RequestEvent, RequestState
from fleetctl.core.routing.candidate import PromptLoad
from fleetctl.core.slo.endings import Ending
from fleetctl.model.gateway import RouteLane, RouteReplica, RoutingTable
from fleetctl.model.profile import LaneMatch
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric

if TYPE_CHECKING:
    from fleetctl.core.admission.refusal import Refusal
    from fleetctl.model.generation import BoundReason

SLO = LaneSlo(targets=(LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=1.0),))
CHAT = RouteLane(name="chat", match=LaneMatch(), slo=SLO, max_wait_s=2.0, queue_max=64)


def route(id_: str, lane: str = "chat", *, concurrency_max: int = 8, continues: bool = True) -> RouteReplica:
    return RouteReplica(
        id=id_, lane=lane, host="127.0.0.1", port=1, in_rotation=True, concurrency_max=concurrency_max,
        prefill_tokens_per_s=20_000.0, continues=continues,
    )  # fmt: skip


def table(*replicas: RouteReplica, lanes: tuple[RouteLane, ...] = (CHAT,), version: int = 1) -> RoutingTable:
    return RoutingTable(fleet="heap", version=version, model="m", lanes=lanes, replicas=replicas)


@dataclass(slots=True, eq=False)
class Due:
    """A call on the heap."""

    call: Callable[[], None] | None

    def cancel(self) -> None:
        self.call = None


@dataclass(slots=True)
class EventHeap:
    """Calls due at the same time are made in the order they were asked for."""

    now_s: float = 0.0
    _heap: list[tuple[float, int, Due]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=count)

    def clock(self) -> float:
        return self.now_s

    def at(self, at_s: float, call: Callable[[], None]) -> Due:
        due = Due(call)
        heapq.heappush(self._heap, (at_s, next(self._order), due))
        return due

    def run(self, until_s: float = float("inf")) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            at_s, _, due = heapq.heappop(heap)
            if due.call is not None:
                self.now_s = at_s
                due.call()


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a request at a replica: a first token, and an answer, or a failure."""

    token_s: float = 0.01
    end_s: float = 0.1
    failure: RequestEvent | None = None
    tpot_s: float = 0.0  # of a stream's further tokens; 0: it has none


class HeapExchange:
    """An ExchangePort whose bytes are fates; `ends` says how the client was answered, `over` last."""

    __slots__ = ("_dispatcher", "_due", "_fate_of", "_heap", "ends", "is_resumable", "request", "sent_to")

    def __init__(
        self, heap: EventHeap, dispatcher: Dispatcher, fate_of: Callable[[str], Fate], *, is_resumable: bool = True
    ) -> None:
        self._heap = heap
        self._dispatcher = dispatcher
        self._fate_of = fate_of
        self._due: list[Due] = []
        self.is_resumable = is_resumable
        self.ends: list[str] = []
        self.sent_to: list[str] = []

    def submit(self, lane: str = "chat", *, prompt_tokens: int = 100, is_stream: bool = True, client: int = 0) -> None:
        self.request = ActiveRequest(
            self, self._dispatcher.routes.lanes[lane], PromptLoad(prompt_tokens, {}), [],
            self._heap.now_s, is_stream=is_stream, client=client,
        )  # fmt: skip
        self._dispatcher.submit(self.request)

    # What comes of it at a replica.

    def send(self, replica_id: str) -> None:
        self.sent_to.append(replica_id)
        fate, now_s, at = self._fate_of(replica_id), self._heap.now_s, self._heap.at
        if fate.failure is RequestEvent.UNREACHABLE:
            self._due = [at(now_s + fate.end_s, lambda: self._fail(RequestEvent.UNREACHABLE))]
            return
        self._dispatcher.connected(self.request)
        self._due = [at(now_s + fate.token_s, self._token)] if self.request.is_stream else []
        failure = fate.failure
        ends = (lambda: self._answer(fate, now_s)) if failure is None else (lambda: self._fail(failure))
        self._due.append(at(now_s + fate.end_s, ends))

    def _token(self) -> None:
        request, now_s = self.request, self._heap.now_s
        request.has_answer = True
        request.heard_s = now_s
        request.stopwatch.tokens(now_s, 1)
        self._dispatcher.first_token(request, now_s)
        self._dispatcher.passed_on(request)

    def _stream(self, fate: Fate, first_s: float) -> None:
        for number in range(1, int((self._heap.now_s - first_s) / fate.tpot_s) + 1 if fate.tpot_s else 0):
            self.request.stopwatch.tokens(first_s + number * fate.tpot_s, 1)

    def _answer(self, fate: Fate, sent_s: float) -> None:
        self.request.has_answer = True
        if self.request.is_stream:
            self._stream(fate, sent_s + fate.token_s)
        self.ends.append("answered")
        self._dispatcher.answered(self.request, Ending.COMPLETE)

    def _fail(self, failure: RequestEvent) -> None:
        self.cancel()
        # A stream that has begun is broken off, with an error event at best, whatever its replica would have answered.
        is_broken_off = self.request.state is RequestState.STREAMING and failure is not RequestEvent.ERROR
        self._dispatcher.failed(self.request, RequestEvent.CLOSED if is_broken_off else failure)

    # ExchangePort.

    def cancel(self) -> None:
        for due in self._due:
            due.cancel()

    def refuse(self, refusal: Refusal, *, retry_after_s: float) -> None:
        assert 0.0 < retry_after_s <= RETURN_S_MAX
        self.ends.append(refusal.value)

    def fail(self, reason: RequestEvent) -> None:
        self.ends.append(f"failed: {reason}")

    def pass_on(self) -> None:
        self.ends.append("passed on")

    def resumption(self, *, may_continue: bool) -> Resumption:
        return Resumption.POSSIBLE if may_continue and self.is_resumable else Resumption.UNLAWFUL

    def end_stream(self) -> None:
        self.ends.append("ended")

    def end_early(self, reason: BoundReason) -> None:
        self.ends.append(f"ended early: {reason}")

    def break_stream(self, reason: RequestEvent) -> None:
        self.ends.append(f"broken: {reason}")

    def over(self) -> None:
        self.ends.append("over")


def dispatcher_on(heap: EventHeap, *, limits: DispatchLimits | None = None, seed: int = 7) -> Dispatcher:
    """A dispatcher whose time and timers are the heap's."""
    return Dispatcher(heap.clock, heap.at, random.Random(seed), limits or DispatchLimits())

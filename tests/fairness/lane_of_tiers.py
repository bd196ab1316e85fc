"""A lane with tiers under a bare event heap: flows of requests by tier and client, and what became of them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.core.dispatch.request import ActiveRequest
from fleetctl.core.fairness.retries import RetryMark
from fleetctl.core.routing.candidate import PromptLoad
from fleetctl.model.tiers import TierSpec, route_tiers
from tests.dispatch.event_heap import CHAT, EventHeap, Fate, HeapExchange, dispatcher_on, route, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.core.admission.refusal import Refusal
    from fleetctl.model.gateway import RouteLane

LANE = replace(CHAT, max_wait_s=0.5, queue_max=64)
TIERS = (
    TierSpec(name="premium", weight=6, floor=0.2),
    TierSpec(name="standard", weight=3, floor=0.1),
    TierSpec(name="free", weight=1, floor=0.05),
)
_SWEEP_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Poisson arrivals of one client."""

    tier: str
    rps: float
    client: int = 1
    prompt_tokens: int = 100
    service_s: float = 0.5  # a slot is held for so long
    from_s: float = 0.0
    until_s: float = 60.0
    retries: int = 0  # a refused request comes again so often, when it was told to


@dataclass(slots=True)
class FlowResult:
    """What became of one flow's requests."""

    offered: int = 0
    good: int = 0
    served_tokens: int = 0
    ends: Counter[str] = field(default_factory=Counter)

    @property
    def good_share(self) -> float:
        return self.good / self.offered if self.offered else 1.0


class _Exchange(HeapExchange):
    """One request of a flow."""

    __slots__ = ("come_again", "flow", "result")
    flow: Flow
    result: FlowResult
    come_again: Callable[[float], None] | None

    def refuse(self, refusal: Refusal, *, retry_after_s: float) -> None:
        super().refuse(refusal, retry_after_s=retry_after_s)
        if self.come_again is not None:
            self.come_again(retry_after_s)

    def over(self) -> None:
        watch = self.request.stopwatch
        self.result.good += watch.is_good
        self.result.ends[self.ends[-1] if self.ends else "?"] += 1
        if "answered" in self.ends:
            self.result.served_tokens += self.flow.prompt_tokens + 1
        super().over()


def run(
    flows: tuple[Flow, ...],
    *,
    tiers: tuple[TierSpec, ...] = TIERS,
    lane: RouteLane = LANE,
    replicas: int = 2,
    slots: int = 8,
    seed: int = 1,
    count_from_s: float = 0.0,
) -> dict[Flow, FlowResult]:
    """Let the flows' requests arrive, and end; those that came before `count_from_s` are not in the results."""
    heap = EventHeap()
    dispatcher = dispatcher_on(heap, seed=seed)
    routes = [route(f"r{number}", concurrency_max=slots) for number in range(replicas)]
    dispatcher.apply(replace(table(*routes, lanes=(lane,)), tiers=route_tiers(tiers)))
    results = {flow: FlowResult() for flow in flows}
    dispatch_lane = dispatcher.routes.lanes[lane.name]

    def arrive(flow: Flow, number: int = 0, attempt: int = 0) -> None:
        exchange = _Exchange(heap, dispatcher, lambda _: Fate(end_s=flow.service_s))
        exchange.flow, exchange.result = flow, results[flow] if heap.now_s >= count_from_s else FlowResult()
        exchange.result.offered += 1
        number = number or exchange.result.offered
        exchange.come_again = None
        if attempt < flow.retries:
            exchange.come_again = partial(come_again, flow, number, attempt + 1)
        held = dispatch_lane.tiers
        exchange.request = ActiveRequest(
            exchange, dispatch_lane, PromptLoad(flow.prompt_tokens, {}), [], heap.now_s, is_stream=True,
            client=flow.client, tier=held.named(flow.tier) if held is not None else None, retry_mark=RetryMark(number),
        )  # fmt: skip
        dispatcher.submit(exchange.request)

    def come_again(flow: Flow, number: int, attempt: int, after_s: float) -> None:
        heap.at(heap.now_s + after_s, lambda: arrive(flow, number, attempt))

    for number, flow in enumerate(flows):
        chance, at_s = random.Random(f"{seed}/{number}"), flow.from_s
        while (at_s := at_s + chance.expovariate(flow.rps)) < flow.until_s:
            heap.at(at_s, lambda flow=flow: arrive(flow))  # type: ignore[misc]  # bound now
    for number in range(round(max(flow.until_s for flow in flows) / _SWEEP_S)):
        heap.at(number * _SWEEP_S, lambda: dispatcher.sweep(heap.now_s))
    heap.run()
    return results

"""Several gateways' Dispatchers before the same simulated engines, and the exchange that divides the limits among them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.core.allotment import Allotter, exchanged
from fleetctl.core.dispatch.dispatcher import Dispatcher
from fleetctl.core.dispatch.limits import DispatchLimits
from fleetctl.core.dispatch.request import ActiveRequest
from fleetctl.core.routing.candidate import PromptLoad
from fleetctl.load.trace import Arrival
from fleetctl.model.gateway import RouteLane, RouteReplica, RoutingTable
from fleetctl.model.profile import LaneMatch
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from fleetctl.plugins import load_engine
from fleetctl.sim.engine import SimulatedEngine
from fleetctl.sim.event_heap import EventHeap
from fleetctl.sim.exchange import SimulatedExchange
from fleetctl.sim.instance import engine_instance
from tests.sim.fleets import desired_for, three_lanes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleetctl.core.admission.refusal import Refusal
    from fleetctl.model.allotment import Allotment, GatewayHoldings
    from fleetctl.sim.instance import EngineInstance

EXCHANGE_S = 0.1
SWEEP_S = 0.25
SLO = LaneSlo(
    targets=(
        LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=2.0),
        LatencyTarget(metric=Metric.ITL, percentile=0.99, limit_s=0.08),
    )
)
LANE = RouteLane(name="long", match=LaneMatch(), slo=SLO, max_wait_s=1.5, queue_max=64)


def instance() -> EngineInstance:
    """Llama-3.1-8B in fp8 on an L4, as planned."""
    plan = desired_for(three_lanes()).plan
    return engine_instance(plan, plan.lane("long"), load_engine("vllm").capabilities)


@dataclass(slots=True)
class Gateway:
    """One gateway: a Dispatcher, and the ExchangeWorld of its requests."""

    number: int
    rig: Several
    dispatcher: Dispatcher
    heap: EventHeap
    hop_s: float = 0.001
    is_reachable: bool = True
    refusals: Counter[str] = field(default_factory=Counter)
    open: set[SimulatedExchange] = field(default_factory=set)
    good: int = 0
    ended: int = 0

    def engine(self, replica_id: str) -> SimulatedEngine | None:
        return self.rig.engines.get(replica_id)

    def refused(self, exchange: SimulatedExchange, refusal: Refusal, retry_after_s: float) -> None:
        del exchange, retry_after_s
        self.refusals[refusal.value] += 1

    def over(self, exchange: SimulatedExchange) -> None:
        self.open.discard(exchange)
        self.ended += 1
        self.good += exchange.request.stopwatch.is_good

    def call(self, allotment: Allotment | None) -> GatewayHoldings | None:
        if not self.is_reachable:
            return None
        if allotment is not None:
            self.dispatcher.sharing.take(allotment, self.heap.now_s)
        else:
            self.dispatcher.sharing.fence(self.rig.epoch)
        return self.dispatcher.sharing.holdings(self.number, self.heap.now_s)

    def arrive(self, row: Arrival) -> None:
        exchange = SimulatedExchange(self, row, 0)
        lane = self.dispatcher.routes.lanes[LANE.name]
        exchange.request = ActiveRequest(
            exchange, lane, PromptLoad(row.prompt_tokens, {}), [], self.heap.now_s, is_stream=True
        )
        self.open.add(exchange)
        self.dispatcher.submit(exchange.request)

    def die(self) -> None:
        """Take its requests along, as a killed process does: their connections to the engines break."""
        for exchange in list(self.open):
            exchange.cancel()
        self.open.clear()


class Several:
    """`weights`: which part of the arrivals each gateway gets."""

    def __init__(
        self,
        weights: Sequence[float],
        *,
        replicas: int = 4,
        streams_max: int = 0,
        lane: RouteLane = LANE,
        seed: int = 1,
        exchange_s: float = EXCHANGE_S,
        after_each: Callable[[Several], None] | None = None,
    ) -> None:
        self.heap = EventHeap()
        made = instance()
        self.streams_max = streams_max or made.limits.max_num_seqs
        names = [f"r{number}" for number in range(replicas)]
        self.engines = {name: SimulatedEngine(self.heap, made.model, made.limits) for name in names}
        self.table = RoutingTable(
            fleet="several", version=1, model="m", lanes=(lane,),
            replicas=tuple(
                RouteReplica(
                    id=name, lane=lane.name, host="127.0.0.1", port=1, in_rotation=True,
                    concurrency_max=self.streams_max, prefill_tokens_per_s=6000.0, kv_tokens=made.limits.kv_blocks * 16,
                )
                for name in names
            ),
        )  # fmt: skip
        self.epoch = 1
        self.allotter = Allotter(self.epoch)
        self.gateways: dict[int, Gateway] = {}
        self.weights = list(weights)
        self.rng = random.Random(seed)
        self.after_each = after_each
        self.exchange_s = exchange_s
        for number in range(1, len(weights) + 1):
            self.add(number, is_beside=len(weights) > 1)
        if len(weights) > 1:
            self._exchange()
        self._sweep()

    def add(self, number: int, *, is_beside: bool = True) -> Gateway:
        dispatcher = Dispatcher(self.heap.clock, self.heap.at, random.Random(number), DispatchLimits())
        if is_beside:
            dispatcher.sharing.begin_beside()
        dispatcher.apply(self.table)
        found = self.gateways[number] = Gateway(number, self, dispatcher, self.heap)
        return found

    def kill(self, number: int) -> None:
        self.gateways.pop(number).die()

    def take_over(self) -> None:
        """Have another controller take the fleet over, which knows nothing."""
        self.epoch += 1
        self.allotter = Allotter(self.epoch)

    def exchange_now(self) -> None:
        exchanged(self.allotter, self.table, {number: each.call for number, each in self.gateways.items()})

    def _exchange(self) -> None:
        self.exchange_now()
        if self.after_each is not None:
            self.after_each(self)
        self.heap.at(self.heap.now_s + self.exchange_s, self._exchange)

    def _sweep(self) -> None:
        now_s = self.heap.now_s
        for engine in self.engines.values():
            heard = [
                each for each in engine.running.values() if each.decodes_from >= 0 and each.gap_counter is not None
            ]
            if heard:
                engine.settle()
                for sequence in heard:
                    sequence.sink.heard(now_s)
        for gateway in self.gateways.values():
            gateway.dispatcher.sweep(now_s)
        self.heap.at(now_s + SWEEP_S, self._sweep)

    def in_flight(self, replica: str) -> int:
        """How many requests all gateways have at a replica."""
        return sum(
            gateway.dispatcher.routes.replicas[replica].candidate.in_flight for gateway in self.gateways.values()
        )

    def run(self, rps: float, until_s: float, *, from_s: float = 0.0) -> None:
        """Let Poisson arrivals come, each at a gateway by the weights."""
        at_s = self.heap.now_s + from_s
        rng = self.rng
        while (at_s := at_s + rng.expovariate(rps)) < until_s:
            self.heap.run(at_s)
            prompt, output = int(rng.lognormvariate(6.9, 0.6)) + 1, int(rng.lognormvariate(4.8, 0.6)) + 1
            numbers = list(self.gateways)
            number = rng.choices(numbers, [self.weights[n - 1] for n in numbers])[0]
            self.gateways[number].arrive(Arrival(at_s=at_s, prompt_tokens=prompt, output_tokens=output, stream=True))
        self.heap.run(until_s)

    @property
    def good(self) -> int:
        """Requests inside their SLO."""
        return sum(gateway.good for gateway in self.gateways.values())

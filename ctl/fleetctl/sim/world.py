"""A simulated fleet from its first arrival to its end."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from fleetctl import plugins
from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.admission.tokens import RequestTokens
from fleetctl.core.dispatch.dispatcher import Dispatcher
from fleetctl.core.dispatch.limits import DispatchLimits
from fleetctl.core.dispatch.request import ActiveRequest
from fleetctl.core.fairness.retries import RetryMark
from fleetctl.core.routing.candidate import PromptLoad
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.traffic import TrafficBreakdown
from fleetctl.load.workflows import WorkflowPlayer
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import BreachKind
from fleetctl.ports.engine import visible_engine
from fleetctl.sim.accounts import LaneRecorder
from fleetctl.sim.checker import Checker
from fleetctl.sim.controller import SimulatedController
from fleetctl.sim.disturb import Disturber
from fleetctl.sim.event_heap import EventHeap
from fleetctl.sim.exchange import SimulatedExchange
from fleetctl.sim.instance import engine_instance
from fleetctl.sim.models import SimulatedModels
from fleetctl.sim.named_keys import NamedKeys
from fleetctl.sim.observer import SimulatedObserver
from fleetctl.sim.provider import SimulatedProvider
from fleetctl.sim.tail import tail_s
from fleetctl.sim.workflow_tracking import WorkflowTracking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.load.trace import Arrival
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.desired import Desired
    from fleetctl.ports.engine import Engine
    from fleetctl.ports.policy import Policy
    from fleetctl.sim.engine import SimulatedEngine
    from fleetctl.sim.instance import EngineInstance
    from fleetctl.sim.nodes import SimulatedNode
    from fleetctl.sim.scenario import SimulationSpec

EPOCH: Final = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
_PROGRESS_S = 60.0  # of simulated time between two words about it
_NOTHING_CACHED: Final[dict[str, int]] = {}


def live_dispatcher(world: SimulatedWorld) -> Dispatcher:
    """Return the dispatcher that the gateway has, on a world's heap; a world may be given another one to compare with."""
    chance = random.Random(f"dispatch/{world.spec.seed}")
    return Dispatcher(world.heap.clock, world.heap.at, chance, DispatchLimits())


class SimulatedWorld:
    """Drives the dispatcher and the policy by a heap of events; an ExchangeWorld to the requests."""

    def __init__(
        self,
        desired: Desired,
        policy: Policy,
        spec: SimulationSpec,
        *,
        offerings: tuple[Offering, ...],
        engine_of: Callable[[str], Engine] = plugins.load_engine,
        dispatcher_of: Callable[[SimulatedWorld], Dispatcher] | None = None,
    ) -> None:
        self.spec = spec
        self.hop_s = spec.hop_s
        self.heap = EventHeap()
        self.dispatcher = (dispatcher_of or live_dispatcher)(self)
        self.recorders = {lane.name: LaneRecorder() for lane in desired.profile.lanes}
        self.traffic = TrafficBreakdown()
        self._keys = NamedKeys(desired.profile.gateway, desired.profile.tiers)
        self.models = SimulatedModels(desired.profile)
        self.requests = 0
        self.arrivals_s = 0.0  # for how long they came, once they do not come any more
        self._counts_replicas = True
        self._open: dict[SimulatedExchange, None] = {}  # those that have not ended, in the order they came
        self._returning = 0  # clients that were refused and will come back, and calls of workflows that are due later
        workflows = desired.profile.workflows
        self.tracking = WorkflowTracking(workflows)
        self.workflows = WorkflowPlayer(workflows.kinds if workflows is not None else ())
        self._checker = Checker(desired.profile.capacity)
        self.unrouted: Counter[str] = Counter()  # arrivals that no lane took, by Refusal
        self.desired = desired
        self._caching = tuple(lane.lane for lane in desired.plan.lanes if lane.launch.prefix_caching)
        self._all_cache = len(self._caching) == len(desired.plan.lanes)
        self.provider = SimulatedProvider(spec, offerings, random.Random(f"nodes/{spec.seed}"))
        self.observer = SimulatedObserver(self.dispatcher, self.provider, fleet=desired.fleet, epoch=EPOCH)
        self.controller = SimulatedController(
            desired,
            policy,
            provider=self.provider,
            observer=self.observer,
            dispatcher=self.dispatcher,
            heap=self.heap,
            instances=self._instances(engine_of),
            engine_of=engine_of,
            on_end=self._node_ended,
        )
        if spec.settled is not None:
            self.controller.settle(spec.settled)
        self.controller.publish()
        disturber = Disturber(self.heap, controller=self.controller, observer=self.observer, provider=self.provider)
        disturber.expect(spec.disturbances)
        self.heap.at(0.0, self._tick)
        self.heap.at(spec.sweep_s, self._sweep)

    def _instances(self, engine_of: Callable[[str], Engine]) -> dict[str, EngineInstance]:
        plan, found = self.desired.plan, {}
        for lane in self.desired.profile.lanes:
            emulation = engine_of(lane.engine).emulation(lane)
            capabilities = visible_engine(engine_of, lane).capabilities
            speed = emulation.speed if emulation is not None else 1.0
            instance = engine_instance(plan, plan.lane(lane.name), capabilities, speed=speed)
            startup_s = lane.emulator.startup_s if emulation is not None else 0.0
            frontend_s = self.spec.frontend_s / speed
            found[lane.name] = replace(instance, startup_s=startup_s, frontend_s=frontend_s)
        return found

    def run(self, trace: Iterable[Arrival], on_progress: Callable[[float], None] = lambda at_s: None) -> None:
        """Let the trace's requests arrive, in its order, and what is under way end."""
        run, arrive, until_s = self.heap.run, self._arrive, self.spec.duration_s
        last_s = reported_s = 0.0
        for row in trace:
            if until_s is not None and row.at_s > until_s:
                break
            if row.at_s >= reported_s:
                on_progress(row.at_s)
                reported_s = row.at_s + _PROGRESS_S
            run(row.at_s)
            if row.call is None:
                arrive(row)
            else:
                self._begin(row)
            self.requests += 1
            last_s = row.at_s
        self.arrivals_s = last_s if until_s is None else until_s
        run(self.arrivals_s)
        self._counts_replicas = False
        self._finish()

    @property
    def open(self) -> int:
        """How many requests have not ended."""
        return len(self._open)

    def _finish(self) -> None:
        """Let what is under way end, and count what does not."""
        heap, spec = self.heap, self.spec
        if spec.tail_s is not None:
            heap.run(self.arrivals_s + spec.tail_s)
        else:
            call_s = tail_s(self.dispatcher.routes.lanes.values())
            until_s = self.arrivals_s + call_s
            while (self._open or self._returning) and heap.now_s < until_s:
                heap.run(min(heap.now_s + spec.sweep_s, until_s))
                until_s = max(until_s, self.workflows.over_by_s(call_s))
        for exchange in self._open:
            self._count_unfinished(exchange)

    def _count_unfinished(self, exchange: SimulatedExchange) -> None:
        request = exchange.request
        stopwatch, lane, now_s = request.stopwatch, request.lane, self.heap.now_s
        stopwatch.check(now_s, is_stream=request.is_stream)
        self._count_traffic(exchange)
        recorder = self.recorders[lane.route.name]
        recorder.unfinished += 1
        if not stopwatch.is_late:
            recorder.undecided += 1
            recorder.bucket(stopwatch.started_s, self.spec.bucket_s).undecided += 1
        if self.spec.tail_s is None:
            self._checker.still_open(request, tail_s([lane]), now_s)

    # Requests.

    def engine(self, replica_id: str) -> SimulatedEngine | None:
        """Return a replica's engine; None: nothing listens there."""
        node = self.provider.nodes.get(replica_id)
        return node.engine.rank() if node is not None and not node.ended else None

    def refused(self, exchange: SimulatedExchange, refusal: Refusal, retry_after_s: float) -> None:
        """Count a refusal; a client that has patience left comes back when it was told to."""
        request = exchange.request
        recorder = self.recorders[request.lane.route.name]
        recorder.refusals[refusal.value] += 1
        self._checker.refused(request, refusal, self.heap.now_s)
        recorder.bucket(request.stopwatch.started_s, self.spec.bucket_s).refused += 1
        row, now_s = exchange.row, self.heap.now_s
        if refusal.is_shortage and (stand_in := self.models.stand_in(request.lane.route.model)):
            self._arrive_at(now_s, row, exchange.attempt, stand_in)
            return
        if row.call is not None:
            again_s = self.workflows.refused(row, now_s, retry_after_s)
        else:
            again_s = now_s + retry_after_s if exchange.attempt < self.spec.retries_max else None
        if again_s is not None:
            self._arrive_at(again_s, row, exchange.attempt + 1)

    def over(self, exchange: SimulatedExchange) -> None:
        """Count an ended request where it arrived."""
        request = exchange.request
        self._open.pop(exchange, None)
        self._checker.ended(exchange.times_over, self.heap.now_s)
        self._count_traffic(exchange)
        stopwatch = request.stopwatch
        recorder = self.recorders[request.lane.route.name]
        bucket = recorder.bucket(stopwatch.started_s, self.spec.bucket_s)
        bucket.good += stopwatch.is_good
        bucket.shed += stopwatch.breach is BreachKind.REFUSED
        if stopwatch.ending is Ending.COMPLETE and (tpot_s := stopwatch.mean_gap_s) is not None:
            recorder.tpot.add(tpot_s)
        if exchange.row.call is not None:
            self.tracking.end(request, exchange.made)
            if request.refused is None:
                self._follow(exchange.row, request)

    def _begin(self, row: Arrival) -> None:
        """Take over a call as the trace has it, and send it if it waits for no other."""
        due_s = self.workflows.arrived(row, row.at_s)
        if due_s is None:
            return
        if due_s <= row.at_s:
            self._arrive(row)
        else:
            self._arrive_at(due_s, row)

    def _follow(self, row: Arrival, request: ActiveRequest) -> None:
        """Send the calls of a workflow that waited for the one that has ended."""
        stopwatch = request.stopwatch
        if stopwatch.ending not in (Ending.COMPLETE, Ending.CAPPED):
            self.workflows.failed(row, str(stopwatch.ending))
            return
        for due_s, following in self.workflows.completed(row, self.heap.now_s, queued_s=stopwatch.wait_s or 0.0):
            self._arrive_at(due_s, following)

    def _arrive_at(self, at_s: float, row: Arrival, attempt: int = 0, stand_in: str = "") -> None:
        self._returning += 1
        self.heap.at(at_s, lambda: self._come_again(row, attempt, stand_in))

    def _count_traffic(self, exchange: SimulatedExchange) -> None:
        """Count a request under its tier and its client."""
        request, row = exchange.request, exchange.row
        refusal = request.refused[0].value if request.refused is not None else ""
        tier = request.tier.spec.name if request.tier is not None else row.tier
        self.traffic.add(tier, row.client, request.stopwatch, refusal=refusal, served_tokens=exchange.served_tokens)

    def _come_again(self, row: Arrival, attempt: int, stand_in: str) -> None:
        self._returning -= 1
        if row.call is None or self.workflows.is_wanted(row):
            self._arrive(row, attempt, stand_in)

    def _arrive(self, row: Arrival, attempt: int = 0, stand_in: str = "") -> None:
        """Let a request arrive; `stand_in`: at this model, as its own has refused it for load."""
        now_s = self.heap.now_s
        tokens = row.prompt_tokens
        prompt = PromptLoad(tokens, _NOTHING_CACHED) if row.cached_lane else self._prompt_of(row)
        own_max = self._keys.own_max(row.client)
        output_tokens = row.output_tokens if own_max is None else min(row.output_tokens, own_max)
        needed = RequestTokens(tokens, tokens, tokens, output_tokens)
        lane = self._lane_of(row, needed, stand_in)
        while not isinstance(lane, Refusal) and not lane.has_replica:
            stand_in = self.models.stand_in(lane.route.model)
            if not stand_in:
                break
            lane.accounts.offered(now_s)  # which is what has a lane started from zero
            lane = self._lane_of(row, needed, stand_in)
        if isinstance(lane, Refusal):
            self.unrouted[lane.value] += 1
            if row.call is not None:
                self.workflows.failed(row, lane.value)
            return
        exchange = SimulatedExchange(self, row, attempt)
        tier = self._keys.tier(row, lane)
        bounds = self._keys.bounds(row, lane, tier)
        if bounds.max_tokens is not None and row.output_tokens > bounds.max_tokens:
            needed, exchange.output_tokens = needed.bounded(bounds.max_tokens), bounds.max_tokens
        request = exchange.request = ActiveRequest(
            exchange,
            lane,
            prompt,
            [],
            now_s,
            is_stream=row.stream,
            tokens=needed,
            is_lane_named=bool(row.lane),
            client=zlib.crc32(row.client.encode()),  # 0: of nobody in particular
            bounds=bounds if bounds.is_bounding else None,
            tier=tier,
            retry_mark=RetryMark(None, is_declared=attempt > 0),
        )
        recorder = self.recorders[lane.route.name]
        recorder.bucket(now_s, self.spec.bucket_s).offered += 1
        recorder.came_again += attempt > 0
        if not attempt and not stand_in:
            recorder.arrivals.add(now_s)
        self._open[exchange] = None
        if row.call is not None:
            self.tracking.begin(request, row.call, self.workflows.parent(row))
        self.dispatcher.submit(request)

    def _lane_of(self, row: Arrival, needed: RequestTokens, stand_in: str) -> DispatchLane[ActiveRequest] | Refusal:
        """Return the lane an arrival enters: the one it was recorded in, where that is given and holds it; else by the rules.

        A gateway matches prompts by what each lane has cached, so what was cached in one lane is work in the others. A model
        that stands in for another chooses among its own lanes, whatever lane was named.
        """
        routes, model = self.dispatcher.routes, stand_in or self.models.of(row)
        if model is None:
            return Refusal.UNKNOWN_MODEL
        prompt = self._prompt_of(row)
        named = [None] if stand_in else [row.lane_entered, row.lane or None] if row.lane_entered else [row.lane or None]
        found: DispatchLane[ActiveRequest] | Refusal = Refusal.UNKNOWN_LANE
        for header in named:
            found = routes.lane_of(prompt, needed, header=header, batch_hint=row.batch, stream=row.stream, model=model)
            if not isinstance(found, Refusal):
                break
        return found

    def _prompt_of(self, row: Arrival) -> PromptLoad:
        """Return a prompt with what of it lies cached, and where."""
        if not row.cached_tokens or (not row.cached_lane and self._all_cache):  # as much is left to do everywhere
            return PromptLoad(row.prompt_tokens, _NOTHING_CACHED)
        lanes = [row.cached_lane] if row.cached_lane else self._caching
        known = [lane for name in lanes if (lane := self.dispatcher.routes.lanes.get(name)) is not None]
        cached = {each.id: row.cached_tokens for lane in known for each in lane.candidates}
        return PromptLoad(row.prompt_tokens + row.cached_tokens, cached or _NOTHING_CACHED)

    def _node_ended(self, node: SimulatedNode) -> None:
        for sequence in node.engine.end():
            sequence.sink.lost()

    def violations(self) -> tuple[str, ...]:
        """Return what did not hold."""
        return self._checker.violations()

    # Time.

    def _tick(self) -> None:
        heap, spec = self.heap, self.spec
        for node in self.provider.nodes.values():
            node.engine.settle()
        self.controller.tick()
        self._checker.ticked(self.controller.records, self.provider.nodes, heap.now_s)
        if self._counts_replicas:
            self._count_replicas()
        heap.at(heap.now_s + spec.tick_s, self._tick)

    def _count_replicas(self) -> None:
        tick_s, recorders = self.spec.tick_s, self.recorders
        for record in self.controller.records.values():
            recorder = recorders[record.lane]
            recorder.held_s += tick_s
            recorder.usd += record.price_usd_per_hour * tick_s / 3600.0
            if record.state is ReplicaState.READY:
                recorder.ready_s += tick_s
                recorder.bucket(self.heap.now_s, self.spec.bucket_s).ready_s += tick_s
        for name, memory in self.controller.memory.lanes.items():
            recorders[name].wanted(memory.wanted)

    def _sweep(self) -> None:
        heap = self.heap
        for node in self.provider.nodes.values():
            for rank in node.engine.ranks:
                if rank.running and not rank.is_hung:
                    self._hear(rank)
        self.dispatcher.sweep(heap.now_s)
        self.tracking.sweep(heap.now_s)
        heap.at(heap.now_s + self.spec.sweep_s, self._sweep)

    def _hear(self, engine: SimulatedEngine) -> None:
        """Let every stream of an engine note how far it is."""
        heard = [each for each in engine.running.values() if each.decodes_from >= 0 and each.gap_counter is not None]
        if heard:
            engine.settle()
            for sequence in heard:
                sequence.sink.heard(self.heap.now_s)

"""A plain gateway in the simulator: a peer's router and its admission in place of the dispatcher's own.

It has no queue of its own, no slots, no lanes' ladder, no lending, no continuation of lost streams and no outlier ejection:
what the router picks is sent, and the engine's own queue holds it. A connection that is refused is tried once elsewhere, as
Envoy's `retry_on: connect-failure`. Lanes stay in the accounts, so that good means the same.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Protocol

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.dispatch.assignment import Assignment
from fleetctl.core.dispatch.dispatcher import Dispatcher
from fleetctl.core.dispatch.endings import Endings
from fleetctl.core.dispatch.limits import DispatchLimits
from fleetctl.core.dispatch.routes import RoutingState
from fleetctl.core.dispatch.silence import note_heard
from fleetctl.core.dispatch.state import RequestEvent, RequestState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.random_source import RandomSource
    from fleetctl.core.routing.candidate import Candidate
    from fleetctl.sim.engine import SimulatedEngine
    from fleetctl.sim.world import SimulatedWorld

_LIMITS = DispatchLimits(resends_max=1, resends_lost_max=0, continuations_max=0, fruitless_continuations_max=0)


class Router(Protocol):
    """Picks a replica among those that are ready."""

    def pick(self, candidates: Sequence[Candidate], request: ActiveRequest, now_s: float) -> Candidate:
        """Return one of the candidates, of which there is at least one."""
        ...


class PoolAdmission(Protocol):
    """Decides who may be sent anything now, before a request is routed."""

    def open_to(self, candidates: Sequence[Candidate], now_s: float) -> Sequence[Candidate]:
        """Return those who may; nobody: the request is turned away, or held."""
        ...


class EngineReadings:
    """Engines' own figures, read anew once they are `age_s_max` old, as the endpoint picker scrapes them."""

    def __init__(self, engine_of: Callable[[str], SimulatedEngine | None], *, age_s_max: float = 0.05) -> None:
        self._engine_of = engine_of
        self._age_s_max = age_s_max
        self._read: dict[str, tuple[float, int, float]] = {}

    def of(self, replica_id: str, now_s: float) -> tuple[int, float]:
        """Return the requests that wait in an engine and the share of its KV cache in use."""
        known = self._read.get(replica_id)
        if known is None or now_s - known[0] >= self._age_s_max:
            engine = self._engine_of(replica_id)
            if engine is None:
                known = (now_s, 0, 0.0)
            else:
                engine.settle()
                known = (now_s, len(engine.waiting), engine.kv_usage)
            self._read[replica_id] = known
        return known[1], known[2]


class PlainRoutes(RoutingState):
    """Routes by a peer's router; with one pool every lane's replicas take any request."""

    def __init__(self, rng: RandomSource, router: Router, *, is_one_pool: bool) -> None:
        super().__init__(rng)
        self.router = router
        self._is_one_pool = is_one_pool

    def pool(self, request: ActiveRequest) -> list[Candidate]:
        """Return the ready replicas that may take a request."""
        if self._is_one_pool:
            every = (replica.candidate for replica in self.replicas.values())
            return [c for c in every if c.in_rotation and c.id not in request.avoided]
        return [c for c in request.lane.candidates if c.in_rotation and c.id not in request.avoided]

    def pick(self, request: ActiveRequest, now_s: float, *, beyond_limit: bool = False) -> Candidate | None:
        """Return the router's choice. None: there is no replica."""
        del beyond_limit
        pool = self.pool(request)
        return self.router.pick(pool, request, now_s) if pool and not request.is_committed else None

    def late_s(self, request: ActiveRequest, now_s: float) -> float | None:
        """Return nothing: a plain gateway predicts nothing."""
        del request, now_s
        return None


class PlainDispatcher(Dispatcher):
    """The state machine of requests with a peer's decisions in it."""

    def __init__(
        self, world: SimulatedWorld, router: Router, *, admission: PoolAdmission | None, is_one_pool: bool
    ) -> None:
        heap = world.heap
        chance = random.Random(f"plain/{world.spec.seed}")
        self.plain = PlainRoutes(chance, router, is_one_pool=is_one_pool)
        super().__init__(heap.clock, heap.at, chance, _LIMITS)
        self.routes = self.plain
        self._endings = Endings(heap.clock, self.plain.ratio)
        self._assignment = Assignment(heap.clock, heap.at, self.plain, self._endings, _LIMITS)
        self._admission = admission

    def submit(self, request: ActiveRequest) -> None:
        """Send a request where the router says, or refuse it."""
        now_s = request.stopwatch.started_s
        request.lane.arrived(request.client, now_s)
        pool = self.plain.pool(request)
        if not pool:
            self._endings.refuse(request, Refusal.NO_REPLICA, RequestEvent.REFUSED)
            return
        left = pool if self._admission is None else self._admission.open_to(pool, now_s)
        if left:
            self._assignment.dispatch(request, self.plain.router.pick(left, request, now_s), now_s)
        else:
            self._endings.refuse(request, Refusal.SHED, RequestEvent.REFUSED)

    def sweep(self, now_s: float) -> None:
        """End what takes longer than a request may; nobody is ejected, and a silent stream hangs."""
        table = self.routes.table
        active = list(self._endings.active)
        note_heard(active, self.routes.replicas.values(), now_s)
        for request in active:
            request.stopwatch.check(now_s, is_stream=request.is_stream)
            begun_s = request.stopwatch.started_s + (request.stopwatch.wait_s or 0.0)
            if table is not None and now_s - begun_s > table.request_timeout_s:
                request.exchange.cancel()
                self._assignment.release(request, failed=False)
                self._endings.time_out(request)
        for lane in self.routes.lanes.values():
            lane.accounts.fold(now_s)


class FlowControlDispatcher(PlainDispatcher):
    """Holds requests while the pool is saturated, sends one a millisecond otherwise, and 503 after `ttl_s`."""

    def __init__(
        self,
        world: SimulatedWorld,
        router: Router,
        *,
        saturation: PoolAdmission,
        is_one_pool: bool,
        ttl_s: float,
        interval_s: float = 0.001,
        poll_s: float = 0.01,
    ) -> None:
        super().__init__(world, router, admission=None, is_one_pool=is_one_pool)
        self._saturation = saturation
        self._heap = world.heap
        self._ttl_s, self._interval_s, self._poll_s = ttl_s, interval_s, poll_s
        self._held: list[ActiveRequest] = []
        self._is_due = False

    def submit(self, request: ActiveRequest) -> None:
        """Hold a request until it is its turn."""
        request.lane.arrived(request.client, request.stopwatch.started_s)
        self._held.append(request)
        if not self._is_due:
            self._is_due = True
            self._dispatch_held()

    def _dispatch_held(self) -> None:
        self._is_due = False
        now_s = self.clock()
        while self._held and now_s - self._held[0].stopwatch.started_s >= self._ttl_s:
            self._endings.refuse(self._held.pop(0), Refusal.NO_REPLICA, RequestEvent.EXPIRED)
        if not self._held:
            return
        request, after_s = self._held[0], self._poll_s
        if request.state is RequestState.OVER:
            self._held.pop(0)
            after_s = 0.0
        else:
            pool = self.plain.pool(request)
            left = self._saturation.open_to(pool, now_s) if pool else ()
            if left:
                self._held.pop(0)
                self._assignment.dispatch(request, self.plain.router.pick(left, request, now_s), now_s)
                after_s = self._interval_s
        self._is_due = True
        self._heap.at(now_s + after_s, self._dispatch_held)

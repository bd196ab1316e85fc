"""Fleets with one thing wrong, simulated, and what is diagnosed of them by what their status and their gateway would show."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.diagnosis.evidence import FleetEvidence
from fleetctl.core.diagnosis.tree import diagnose
from fleetctl.core.reconcile import reconcile
from fleetctl.core.status import FleetKnowledge, fleet_status
from fleetctl.gateway.traces import EndedRequests
from fleetctl.load.trace import Arrival
from fleetctl.model.desired import Desired
from fleetctl.model.journal import JournalEntry
from fleetctl.model.request_trace import RequestTrace, TraceQuery
from fleetctl.model.status import FleetStatus
from fleetctl.sim.scenario import SimulationSpec
from fleetctl.sim.world import EPOCH, SimulatedWorld
from tests.sim.fleets import desired_for, offerings, three_lanes

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.core.diagnosis.findings import Diagnosis
    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.observation import Observation
    from fleetctl.sim.exchange import SimulatedExchange

REQUESTS_MAX = 5000


class HeapClock:
    """Implements Clock by a simulation's heap."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    def monotonic_s(self) -> float:
        return self._world.heap.now_s

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._world.heap.now_s)

    async def sleep(self, seconds: float) -> None:
        await SYSTEM_CLOCK.sleep(seconds)


class Recorded:
    """The built-in policy, what it last saw and decided, and the journal that follows of it."""

    def __init__(self) -> None:
        self.observation: Observation | None = None
        self.decision: Decision | None = None
        self.journal: list[JournalEntry] = []

    def __call__(self, desired: Desired, observation: Observation, memory: Memory, now: datetime) -> Decision:
        decision = reconcile(desired, observation, memory, now)
        self.observation, self.decision = observation, decision
        for action in decision.actions:
            self.journal.append(
                JournalEntry(
                    seq=len(self.journal) + 1, at=now, fleet=desired.fleet, kind=action.kind, subject=action.subject,
                    action=action.name, code=action.code, reason=action.reason,
                )
            )  # fmt: skip
        return decision


@dataclass(frozen=True)
class Seen:
    """What a fleet shows when it is looked at."""

    status: FleetStatus
    requests: tuple[RequestTrace, ...]
    journal: tuple[JournalEntry, ...]


_SEEN: dict[object, Seen] = {}  # stages differ often in what is told of a fleet only, and not in what happens to it


class StagedWorld(SimulatedWorld):
    """Remembers requests as the gateway does."""

    def __init__(
        self, desired: Desired, spec: SimulationSpec, client_of: Callable[[Arrival], int], boot_s: float
    ) -> None:
        self.policy = Recorded()
        super().__init__(desired, self.policy, spec, offerings=offerings(boot_s=boot_s))
        self.ended = EndedRequests(HeapClock(self), EPOCH)
        self.client_of = client_of
        self.seen: Seen | None = None

    def over(self, exchange: SimulatedExchange) -> None:
        super().over(exchange)
        request = exchange.request
        request.id, request.traceparent = b"r%d" % self.requests, None
        request.degraded = request.limited = b""
        request.in_place_of = request.adapter = ""
        request.client = self.client_of(exchange.row)
        self.ended.note(request)

    def status(self) -> FleetStatus:
        observation, controller = self.policy.observation, self.controller
        assert observation is not None
        known = FleetKnowledge(
            at=EPOCH + timedelta(seconds=self.heap.now_s), desired=self.desired, records=tuple(controller.records.values()),
            memory=controller.memory, observation=observation, decision=self.policy.decision, controller_pid=1,
        )  # fmt: skip
        return fleet_status(known, ())

    def look(self) -> None:
        requests = tuple(self.ended.find(TraceQuery(limit=REQUESTS_MAX)).requests)
        self.seen = Seen(self.status(), requests, tuple(self.policy.journal[-200:]))


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A fleet, its load, what goes wrong with it, and when to look."""

    profile: dict[str, object] = field(default_factory=dict)
    settled: dict[str, int] | None = field(default_factory=lambda: {"short": 1, "long": 4, "batch": 1})
    rps: Callable[[float], float] = lambda at_s: 6.0
    lengths: Callable[[random.Random], tuple[int, int]] = lambda rng: (rng.randint(100, 2000), rng.randint(50, 200))
    client_of: Callable[[Arrival], int] = lambda row: row.output_tokens % 7
    spec: SimulationSpec = field(default_factory=lambda: SimulationSpec(seed=5))
    look_at_s: float = 300.0
    boot_s: float = 120.0
    desired: Callable[[Desired], Desired] = lambda desired: desired
    status: Callable[[FleetStatus], FleetStatus] = lambda status: status
    arrival: Callable[[Arrival], Arrival] = lambda row: row
    trace: Callable[[RequestTrace], RequestTrace] = lambda trace: trace  # what engines do that simulated ones do not
    journal: tuple[JournalEntry, ...] = ()  # besides what the fleet itself has decided

    def diagnosis(self) -> Diagnosis:
        """Run it, unless one like it was, and return what is found."""
        happens = (
            repr(self.profile), repr(self.settled), repr(self.spec), self.rps, self.lengths, self.client_of,
            self.look_at_s, self.boot_s, self.desired, self.arrival,
        )  # fmt: skip
        desired = self.desired(desired_for(three_lanes(**self.profile), boot_s=self.boot_s))
        seen = _SEEN.get(happens)
        if seen is None:
            seen = _SEEN[happens] = self._seen(desired)
        evidence = FleetEvidence(
            desired=desired,
            status=self.status(seen.status),
            requests=tuple([self.trace(each) for each in seen.requests]),
            journal=(*seen.journal, *self.journal),
        )
        return diagnose(evidence)

    def _seen(self, desired: Desired) -> Seen:
        spec = replace(self.spec, settled=self.settled, tail_s=1.0)
        world = StagedWorld(desired, spec, self.client_of, self.boot_s)
        world.heap.at(self.look_at_s, world.look)
        world.run(self._arrivals())
        assert world.seen is not None
        return world.seen

    def _arrivals(self) -> list[Arrival]:
        rng, at_s = random.Random(self.spec.seed), 0.0
        made: list[Arrival] = []
        while True:
            at_s += rng.expovariate(self.rps(at_s))
            if at_s > self.look_at_s + 1.0:
                return made
            prompt, output = self.lengths(rng)
            row = Arrival(at_s=at_s, prompt_tokens=prompt, output_tokens=output, stream=True, batch=False)
            made.append(self.arrival(row))

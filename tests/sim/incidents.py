"""Seeded incidents in virtual time: requests through the real dispatcher, judged by the client and by the fleet's status.

One lane, engines that can be slowed, hung and killed, an event heap for time. The controller decides in shadow mode, so
that an incident lasts as long as it is told to. The client keeps the accounts that `load --lane` keeps.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from fleetctl.core.conditions import ConditionType, fleet_condition
from fleetctl.core.dispatch.ports import Resumption
from fleetctl.core.dispatch.request import ActiveRequest
from fleetctl.core.dispatch.state import RequestEvent, RequestState
from fleetctl.core.reconcile import reconcile
from fleetctl.core.routing.candidate import PromptLoad
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.judge import judge_run
from fleetctl.core.status import FleetKnowledge, fleet_status
from fleetctl.load.accounts import ClientAccounts
from fleetctl.model.decision import Memory
from fleetctl.model.gateway import GatewaySnapshot, RouteLane
from fleetctl.model.ladder import LadderStep
from fleetctl.model.observation import Observation
from fleetctl.model.profile import LaneMatch, Mode
from fleetctl.model.slo import Validity
from fleetctl.model.verdict import Compliance, SloVerdict
from fleetctl.testing import samples
from tests.dispatch.event_heap import Due, EventHeap, dispatcher_on, route, table
from tests.reconcile.worlds import at, desired, lane_spec, observed

if TYPE_CHECKING:
    from fleetctl.core.admission.refusal import Refusal
    from fleetctl.core.dispatch.dispatcher import Dispatcher

LANE = "short"
SLO = samples.lane_slo()  # TTFT P99 300 ms, ITL P99 50 ms
OBJECTIVE = 0.995
REPLICAS = ("r1", "r2")
CALM_S, AFTER_S = 60.0, 90.0
NETWORK_S = 0.001  # between gateway and client
SWEEP_S = 0.25  # as often as the gateway does


class IncidentKind(StrEnum):
    SLOW = "slow"
    HANG = "hang"
    KILL = "kill"
    REFUSE = "refuse"
    OVERLOAD = "overload"
    FEW_SAMPLES = "few samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """What happens, drawn from a seed."""

    seed: int
    kind: IncidentKind
    rps: float
    starts_s: float
    lasts_s: float
    factor: float  # slower, or more load

    @classmethod
    def of(cls, seed: int) -> Incident:
        dice = random.Random(seed)
        kind = list(IncidentKind)[seed % len(IncidentKind)]
        return cls(
            seed=seed,
            kind=kind,
            rps=dice.uniform(0.7, 1.2) if kind is IncidentKind.FEW_SAMPLES else dice.uniform(1.5, 6.0),
            starts_s=CALM_S + dice.uniform(0.0, 1.0),
            lasts_s=dice.uniform(20.0, 50.0),
            factor=dice.uniform(4.0, 16.0) if kind is not IncidentKind.OVERLOAD else dice.uniform(12.0, 20.0),
        )

    @property
    def ends_s(self) -> float:
        return self.starts_s + self.lasts_s


@dataclass(slots=True)
class Engine:
    """One replica's process."""

    slowness: float = 1.0
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
        self._later(world.dice.uniform(0.05, 0.15) * engine.slowness, self._first)

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
        slowness = self._engine.slowness if self._engine else 1.0
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
        self._watch.stop(now_s, ending, is_stream=True, prompt_tokens=0, output_tokens_uncounted=0)
        self._world.client.close(self._watch)

    # ExchangePort.

    def cancel(self) -> None:
        if self._due is not None:
            self._due.cancel()
        self._leave_engine()

    def refuse(self, refusal: Refusal, *, retry_after_s: int) -> None:
        if refusal.status == 429:
            self._watch.refused(self._world.heap.now_s + NETWORK_S, refusal)
            self._world.client.close(self._watch)
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

    def break_stream(self, reason: RequestEvent) -> None:
        self._end(Ending.INCOMPLETE)

    def over(self) -> None:
        assert self.request.state is RequestState.OVER


@dataclass(slots=True)
class Second:
    """What both sides say at one instant."""

    at_s: float
    server: SloVerdict
    client: SloVerdict
    condition: ConditionType
    message: str


class World:
    """One incident from beginning to end; `seconds` holds what was said, once a second."""

    def __init__(self, incident: Incident) -> None:
        self.incident = incident
        self.dice = random.Random(incident.seed)
        self.heap = EventHeap()
        self.dispatcher: Dispatcher = dispatcher_on(self.heap, seed=incident.seed)
        self.engines = {name: Engine() for name in REPLICAS}
        self.client = ClientAccounts({LANE: SLO}, objective=OBJECTIVE, now_s=0.0)
        self.seconds: list[Second] = []
        self.memory = Memory()
        self._desired = desired(lane_spec(LANE), mode=Mode.SHADOW, counts={LANE: (len(REPLICAS), 0)})
        self._version = 0
        self._load = 1.0
        self._publish(LadderStep.NORMAL)

    def run(self) -> None:
        heap, incident = self.heap, self.incident
        heap.at(incident.starts_s, self._begin)
        heap.at(incident.ends_s, self._recover)
        heap.at(self._gap_s(), self._arrive)
        heap.at(SWEEP_S, self._sweep)
        heap.at(1.0, self._tick)
        heap.run(incident.ends_s + AFTER_S)

    def server_run(self) -> SloVerdict:
        """Return the judge's verdict on everything the gateway counted."""
        accounts = self.dispatcher.routes.lanes[LANE].accounts
        accounts.fold(self.heap.now_s)
        return judge_run(accounts.windows.lifetime().window(self.heap.now_s, SLO), objective=OBJECTIVE)

    def client_run(self) -> SloVerdict:
        self.client.check(self.heap.now_s)
        return self.client.whole(LANE, self.heap.now_s)

    # Time passes.

    def _gap_s(self) -> float:
        return self.dice.expovariate(self.incident.rps * self._load)

    def _arrive(self) -> None:
        Stream(self, tokens=self.dice.randrange(10, 40))
        self.heap.at(self.heap.now_s + self._gap_s(), self._arrive)

    def _sweep(self) -> None:
        self.dispatcher.sweep(self.heap.now_s)
        self.heap.at(self.heap.now_s + SWEEP_S, self._sweep)

    def _tick(self) -> None:
        now_s = self.heap.now_s
        now = at(now_s)
        gateway = GatewaySnapshot(
            fleet="demo", at=now, started_at=at(0), table_version=self._version, pid=1,
            lanes=tuple(lane.snapshot(now_s) for lane in self.dispatcher.routes.lanes.values()), replicas=(),
        )  # fmt: skip
        seen = tuple(observed(name) for name in REPLICAS)
        observation = Observation(
            at=now, listing_ok=True, replicas=seen, gateway=gateway, gateway_validity=Validity.OK, gateway_alive=True
        )
        decision = reconcile(self._desired, observation, self.memory, now)
        self.memory = decision.memory
        known = FleetKnowledge(
            at=now, desired=self._desired, records=tuple(r.record for r in seen), memory=self.memory,
            observation=observation, decision=decision, controller_pid=1,
        )  # fmt: skip
        status = fleet_status(known, ())
        headline = fleet_condition(status)
        client = self.client.live(now_s, now).get(LANE, SloVerdict())
        self.seconds.append(Second(now_s, status.lanes[0].verdict, client, headline.type, headline.message))
        self.heap.at(now_s + 1.0, self._tick)

    # The incident.

    def _begin(self) -> None:
        incident = self.incident
        match incident.kind:
            case IncidentKind.SLOW | IncidentKind.FEW_SAMPLES:
                for engine in self.engines.values():
                    engine.slowness = incident.factor
            case IncidentKind.HANG:
                for engine in self.engines.values():
                    engine.is_hung = True
            case IncidentKind.KILL:
                for engine in self.engines.values():
                    engine.is_dead = True
                    for stream in list(engine.streams):
                        stream.lose()
            case IncidentKind.REFUSE:
                self._publish(LadderStep.BREAKER)
            case IncidentKind.OVERLOAD:
                self._load = incident.factor

    def _recover(self) -> None:
        self._load = 1.0
        self._publish(LadderStep.NORMAL)
        for engine in self.engines.values():
            engine.slowness, engine.is_hung, engine.is_dead = 1.0, False, False
            waiting, engine.waiting = engine.waiting, []
            for call in waiting:
                self.heap.at(self.heap.now_s, call)

    def _publish(self, step: LadderStep) -> None:
        self._version += 1
        lane = RouteLane(name=LANE, match=LaneMatch(), slo=SLO, max_wait_s=2.0, queue_max=64, step=step)
        replicas = [replace(route(name, LANE), concurrency_max=8) for name in REPLICAS]
        self.dispatcher.apply(table(*replicas, lanes=(lane,), version=self._version))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of one incident; seconds from its beginning, or from its end."""

    incident: Incident
    named_s: float | None  # by the fleet's status
    client_named_s: float | None
    second_miss_s: float | None  # when two requests were known to be missed: less is no evidence
    gone_s: float  # after the end; 0: before it
    disagreement_s: float  # the longest time for which client and fleet said different things
    false_alarms_s: int  # seconds of breach before the incident
    is_headline: bool  # whether the fleet's headline said BREACH whenever the lane was in breach
    runs: tuple[Compliance, Compliance]  # over everything: the fleet's, the client's
    attained: tuple[float, float]


def trial(seed: int) -> Trial:
    """Run one incident."""
    world = World(Incident.of(seed))
    world.run()
    incident, seconds = world.incident, world.seconds
    missed = [s for s in seconds if s.server.compliance is Compliance.MISSED]
    during = [s.at_s - incident.starts_s for s in missed if s.at_s >= incident.starts_s]
    client = [s.at_s - incident.starts_s for s in seconds if _in_breach(s.client) and s.at_s >= incident.starts_s]
    bad = [s.at_s - incident.starts_s for s in seconds if s.at_s >= incident.starts_s and _missed(s.server) >= 2]
    server_run, client_run = world.server_run(), world.client_run()
    return Trial(
        incident=incident,
        named_s=during[0] if during else None,
        client_named_s=client[0] if client else None,
        second_miss_s=bad[0] if bad else None,
        gone_s=max([s.at_s + 1.0 - incident.ends_s for s in missed] + [0.0]),
        disagreement_s=_longest(seconds),
        false_alarms_s=sum(s.at_s < incident.starts_s for s in missed),
        is_headline=all(s.condition is ConditionType.BREACH for s in missed),
        runs=(server_run.compliance, client_run.compliance),
        attained=(server_run.attained or 0.0, client_run.attained or 0.0),
    )


def _in_breach(verdict: SloVerdict) -> bool:
    return verdict.compliance is Compliance.MISSED


def _missed(verdict: SloVerdict) -> int:
    return verdict.offered - verdict.good


def _longest(seconds: list[Second]) -> float:
    longest = current = 0
    for second in seconds:
        current = current + 1 if _in_breach(second.server) is not _in_breach(second.client) else 0
        longest = max(longest, current)
    return float(longest)

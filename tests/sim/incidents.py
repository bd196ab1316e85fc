"""Seeded incidents in virtual time: requests through the real dispatcher, judged by the client and by the fleet's status.

One lane, engines that can be slowed, hung and killed, an event heap for time. The controller decides in shadow mode, so
that an incident lasts as long as it is told to. The client keeps the accounts that `load --lane` keeps.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.conditions import ConditionType, fleet_condition
from fleetctl.core.reconcile import reconcile
from fleetctl.core.slo.binomial import chance_of_at_least
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.judge import LIVE_CONFIDENCE, judge_run
from fleetctl.core.status import FleetKnowledge, fleet_status
from fleetctl.load.accounts import ClientAccounts
from fleetctl.model.decision import Memory
from fleetctl.model.gateway import GatewaySnapshot, LaneWindow, RouteLane
from fleetctl.model.ladder import LadderStep
from fleetctl.model.observation import Observation
from fleetctl.model.profile import LaneMatch, Mode
from fleetctl.model.slo import Validity
from fleetctl.model.verdict import Compliance, SloVerdict
from fleetctl.testing import samples
from tests.dispatch.event_heap import EventHeap, dispatcher_on, route, table
from tests.reconcile.worlds import at, desired, lane_spec, observed
from tests.sim.incident import AFTER_S, Incident, IncidentKind
from tests.sim.incident_engines import LANE, Engine, Stream

if TYPE_CHECKING:
    from fleetctl.core.dispatch.dispatcher import Dispatcher

CERTAIN = 1e-8  # the chance of samples that leave no doubt
SWEEP_S = 0.25  # as often as the gateway does


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
        self.engines = {f"r{number}": Engine() for number in range(1, incident.replicas + 1)}
        self.client = ClientAccounts({LANE: incident.slo}, objective=incident.objective, now_s=0.0)
        self.seconds: list[Second] = []
        self.memory = Memory()
        self.share_of_stragglers, self.factor_of_stragglers = 0.0, 1.0
        self._desired = desired(
            replace(lane_spec(LANE), slo=incident.slo),
            mode=Mode.SHADOW,
            counts={LANE: (incident.replicas, 0)},
            objective=replace(samples.profile().objective, fraction=incident.objective),
        )
        self._version = 0
        self._load = 1.0
        self._tokens = incident.tokens
        self._answers_client = True
        self._base: LaneWindow | None = None  # what was counted when the incident began
        self.shown_s: float | None = None  # when what was counted since shows it: nobody can know earlier
        self.certain_s: float | None = None  # when it is beyond doubt
        self._publish(LadderStep.NORMAL)

    def run(self) -> None:
        heap, incident = self.heap, self.incident
        for starts_s, ends_s in incident.phases:
            heap.at(starts_s, self._begin)
            heap.at(ends_s, self._recover)
        heap.at(self._gap_s(), self._arrive)
        heap.at(SWEEP_S, self._sweep)
        heap.at(1.0, self._tick)
        heap.run(incident.ends_s + AFTER_S)

    def server_run(self) -> SloVerdict:
        """Return the judge's verdict on everything the gateway counted."""
        return judge_run(self.counted(), objective=self.incident.objective)

    def counted(self) -> LaneWindow:
        """Return everything the gateway counted until now."""
        accounts = self.dispatcher.routes.lanes[LANE].accounts
        accounts.fold(self.heap.now_s)
        return accounts.windows.lifetime().window(self.heap.now_s, self.incident.slo)

    def client_run(self) -> SloVerdict:
        self.client.check(self.heap.now_s)
        return self.client.whole(LANE, self.heap.now_s)

    # Time passes.

    def _gap_s(self) -> float:
        return self.dice.expovariate(self.incident.rps * self._load)

    def _arrive(self) -> None:
        if self._answers_client or self.dice.random() > self.incident.share:
            Stream(self, tokens=self.dice.randrange(*self._tokens))
        else:
            now_s = self.heap.now_s
            watch = self.client.begin("", now_s, is_stream=True)
            self.client.end(watch, now_s, Ending.ERROR, is_stream=True, message="")
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
        seen = tuple(observed(name) for name in self.engines)
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
        if self._base and self.certain_s is None:
            chance = self._chance_without_incident(self._base)
            if chance <= 1.0 - LIVE_CONFIDENCE:
                self.shown_s = self.shown_s or now_s
            if chance <= CERTAIN:
                self.certain_s = now_s
        self.heap.at(now_s + 1.0, self._tick)

    def _chance_without_incident(self, base: LaneWindow) -> float:
        """Return the chance of the samples since the incident began, and of none before it, had there been none."""
        whole = self.counted()
        shares = [(whole.missed - base.missed, whole.judged - base.judged, 1.0 - self.incident.objective)]
        for now, before in zip(whole.targets, base.targets, strict=True):
            shares.append((now.over - before.over, now.samples - before.samples, 1.0 - now.target.percentile))
        over = [share for share in shares if share[0] > share[1] * share[2]]
        return min([chance_of_at_least(*share) for share in over], default=1.0)

    # The incident.

    def _begin(self) -> None:
        self._base = self._base or self.counted()
        incident = self.incident
        match incident.kind:
            case IncidentKind.REFUSE:
                self._publish(LadderStep.BREAKER)
            case IncidentKind.OVERLOAD:
                self._load = incident.factor
            case IncidentKind.STRAGGLERS | IncidentKind.CALM:
                self.share_of_stragglers, self.factor_of_stragglers = incident.share, 10.0
            case IncidentKind.LONG_ANSWERS:
                self._tokens = (110, 140)
            case IncidentKind.UNNAMED:
                self._answers_client = False
            case _:
                for engine in list(self.engines.values())[: 1 if incident.kind is IncidentKind.ONE_REPLICA else None]:
                    self._hit(engine)

    def _hit(self, engine: Engine) -> None:
        match self.incident.kind:
            case IncidentKind.HANG:
                engine.is_hung = True
            case IncidentKind.KILL:
                engine.is_dead = True
                for stream in list(engine.streams):
                    stream.lose()
            case IncidentKind.ITL:
                engine.token_slowness = self.incident.factor
            case _:
                engine.slowness = self.incident.factor

    def _recover(self) -> None:
        self._load = 1.0
        self._tokens = self.incident.tokens
        self._answers_client = True
        self.share_of_stragglers = 0.0
        self._publish(LadderStep.NORMAL)
        for engine in self.engines.values():
            engine.slowness, engine.token_slowness, engine.is_hung, engine.is_dead = 1.0, 1.0, False, False
            waiting, engine.waiting = engine.waiting, []
            for call in waiting:
                self.heap.at(self.heap.now_s, call)

    def _publish(self, step: LadderStep) -> None:
        self._version += 1
        lane = RouteLane(name=LANE, match=LaneMatch(), slo=self.incident.slo, max_wait_s=2.0, queue_max=64, step=step)
        most = self.incident.concurrency_max
        replicas = [replace(route(name, LANE), concurrency_max=most) for name in self.engines]
        self.dispatcher.apply(table(*replicas, lanes=(lane,), version=self._version))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of one incident; seconds from its beginning, or from its end."""

    incident: Incident
    named_s: float | None  # by the fleet's status
    client_named_s: float | None
    shown_s: float | None  # when its own samples show it: nobody can be sure of it earlier. None: never
    certain_s: float | None  # when they do beyond doubt
    gone_s: float  # after the end; 0: before it
    disagreement_s: float  # the longest time for which client and fleet said different things
    contradiction_s: float  # the longest for which one said missed, and the other kept
    false_alarms_s: int  # seconds of breach before the incident, or without one
    breaches: int  # how many the fleet saw begin
    is_headline: bool  # whether the fleet's headline said BREACH whenever the lane was in breach
    runs: tuple[Compliance, Compliance]  # over everything: the fleet's, the client's
    attained: tuple[float, float]
    total: Compliance  # the client's, requests under no lane among them


def trial(incident: Incident) -> Trial:
    """Run one incident."""
    world = World(incident)
    world.run()
    seconds, starts_s = world.seconds, incident.starts_s
    is_calm = incident.kind in (IncidentKind.CALM, IncidentKind.UNNAMED)  # for the fleet's own lanes
    missed = [s for s in seconds if s.server.compliance is Compliance.MISSED]
    during = [s.at_s - starts_s for s in missed if s.at_s >= starts_s]
    client = [s.at_s - starts_s for s in seconds if _in_breach(s.client) and s.at_s >= starts_s]
    server_run, client_run = world.server_run(), world.client_run()
    return Trial(
        incident=incident,
        named_s=during[0] if during else None,
        client_named_s=client[0] if client else None,
        shown_s=world.shown_s - starts_s if world.shown_s is not None and not is_calm else None,
        certain_s=world.certain_s - starts_s if world.certain_s is not None and not is_calm else None,
        gone_s=max([s.at_s + 1.0 - incident.ends_s for s in missed] + [0.0]),
        disagreement_s=_longest(seconds, (Compliance.UNDECIDED, Compliance.KEPT, Compliance.NONE)),
        contradiction_s=_longest(seconds, (Compliance.KEPT, Compliance.NONE)),
        false_alarms_s=sum(is_calm or s.at_s < starts_s for s in missed),
        breaches=len({s.server.breach.since for s in missed if s.server.breach}),
        is_headline=all(s.condition is ConditionType.BREACH for s in missed),
        runs=(server_run.compliance, client_run.compliance),
        attained=(server_run.attained or 0.0, client_run.attained or 0.0),
        total=world.client.total(world.heap.now_s)[1].compliance,
    )


def _in_breach(verdict: SloVerdict) -> bool:
    return verdict.compliance is Compliance.MISSED


def _longest(seconds: list[Second], others: tuple[Compliance, ...]) -> float:
    """Return the longest time for which one side said missed, and the other one of `others`."""
    longest = current = 0
    for second in seconds:
        verdicts = {second.server.compliance, second.client.compliance}
        current = current + 1 if Compliance.MISSED in verdicts and verdicts & set(others) else 0
        longest = max(longest, current)
    return float(longest)

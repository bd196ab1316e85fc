"""What must hold in every run, at every instant; the first violation ends it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.controller.launch import token_of
from fleetctl.core.reconcile.limits import backoff_s, since_s
from fleetctl.errors import CapacityError, UnobtainableError
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.ladder import LadderStep
from fleetctl.model.node import NodeState
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.testing.machines import machines_of
from tests.torture.faults import FaultKind
from tests.torture.rules import ROTATION_S, STORE_FAULTS, RecordAges, WideChecks
from tests.torture.wanted import FLEET, SCALE_DOWN_AFTER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.errors import FleetctlError
    from fleetctl.model.decision import LaneMemory, Memory
    from fleetctl.model.gateway import RoutingTable
    from fleetctl.model.node import Node, NodeRequest
    from fleetctl.model.replica import Replica
    from fleetctl.testing.lives import NodeLife
    from tests.torture.life import Life
    from tests.torture.run import Run

_GATEWAY_FAULTS = (FaultKind.GATEWAY_SILENT, FaultKind.GATEWAY_LOSES_REPLY)
_STOPPABLE = (ReplicaState.DRAINING, ReplicaState.STOPPING, ReplicaState.GONE, ReplicaState.FAILED)
_COOL_OFF_S = 180.0
_LADDER_HOLD_S = 10.0
_EPSILON_S = 0.05
_GENERATION_S = 12.0
_FENCED_S = 12.0
_EARLY_S = 3.0
_FULL_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that did not hold."""

    rule: str
    at_s: float
    message: str

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.rule} at {self.at_s:.2f} s: {self.message}"


@dataclass(slots=True)
class _Wanted:
    """How many replicas the controller wants in a lane, and since when it wants no fewer."""

    count: int
    planned: int
    raised_s: float


class Checks:
    """Everything that is watched in one run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.violations: list[Violation] = []
        self.clock_set_s = -1e9
        self.ages, self.wide = RecordAges(self), WideChecks(self)
        self.orders = 0
        self.stops = 0
        self._wanted: dict[str, _Wanted] = {}
        self._stepped: dict[str, tuple[float, LadderStep]] = {}
        self._journalled: dict[str, set[str]] = defaultdict(set)
        self._assigned_s = -1e9  # when a replica was last given to another lane
        self._begun_s: dict[str, float] = {}  # replica -> when its order was written down
        self._stopped: dict[str, str] = {}  # node -> replica
        self._out_since_s: dict[str, float] = {}
        self._generation_since_s: dict[int, float] = {}

    def violated(self, rule: str, message: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(rule=rule, at_s=self.run.now_s, message=message))

    # Writers

    def committed(self, life: Life) -> None:
        """Check that only the newest lease writes."""
        if life.epoch < self.run.epoch:
            self.violated("two-writers", f"epoch {life.epoch} wrote after epoch {self.run.epoch} had begun")

    def calling(self, life: Life, call: str) -> None:
        """Check that who calls may, and that it was not told to wait."""
        if call in ("create", "stop") and life.epoch < self.run.epoch:
            self.violated("two-writers", f"epoch {life.epoch} called {call} after epoch {self.run.epoch} had begun")
        # One that finds its clock set begins anew, and knows nothing of what it was refused a moment ago.
        begins_anew = self.run.now_s - self.clock_set_s < self.run.tick_s + ROTATION_S
        if not begins_anew and self.run.now_s < life.not_before_s.get(call, 0.0) - _EPSILON_S:
            self.violated("throttled", f"{call} before {life.not_before_s[call]:.2f} s, when it is let in again")

    # Orders

    def ordering(self, life: Life, requests: tuple[NodeRequest, ...]) -> None:
        """Check an order as it is sent."""
        del life
        on_record = {intent.token: intent.request for intent in self.run.store.open_intents(FLEET)}
        for request in requests:
            self.orders += 1
            if on_record.get(request.token) != request:
                self.violated("no-intent", f"{request.replica_id} was ordered, and no open intent on record is of that")
            if not self._journalled[request.replica_id] & {"request-node", "create"}:
                self.violated("journal", f"{request.replica_id} was ordered and the journal does not say so")

    def refused(self, life: Life, request: NodeRequest, error: FleetctlError) -> None:
        """Note an offering that the life now knows it cannot have."""
        if not isinstance(error, UnobtainableError):
            return
        window = (self.run.now_s, self.run.now_s + _COOL_OFF_S)
        named = isinstance(error, CapacityError) and error.instance_type
        keys = [request.offering] if named or not error.market else []
        life.avoided_s.update(dict.fromkeys(keys, window))

    def made(self, request: NodeRequest, life: NodeLife) -> None:
        """Check a node as an order makes it."""
        mine = [node.id for node in self.run.cloud.held() if node.replica_id == request.replica_id]
        if len(mine) > 1:
            self.violated("double-create", f"{request.replica_id} has the nodes {', '.join(mine)}")
        del life
        self._check_caps()

    def _check_caps(self) -> None:
        caps, held = self.run.caps, [n for n in self.run.cloud.held() if n.token not in self.run.cloud.not_ours]
        machines = {machine for node in held for machine in machines_of(node)}
        if len(machines) > caps.max_nodes:
            self.violated("cap", f"{len(machines)} nodes, and the cap is {caps.max_nodes}: {_names(held)}")
        cost = sum(node.price_usd_per_hour or 0.0 for node in held)
        if caps.max_cost_usd_per_hour is not None and cost > caps.max_cost_usd_per_hour + 1e-6:
            self.violated("cap", f"${cost:.3f} an hour of ${caps.max_cost_usd_per_hour:.3f}: {_names(held)}")

    # Stops

    def stopping(self, node: Node) -> None:
        """Check a stop as it has its effect."""
        self.stops += 1
        run = self.run
        # On a full disk a stop goes without its line: it costs money, and nobody knows for how long.
        if not run.injector.is_open_since((FaultKind.STORE_FULL,), _FULL_S):
            self._stopped[node.id] = node.replica_id
        is_sound = run.gateway.answers and not run.injector.is_open_since((*_GATEWAY_FAULTS, *STORE_FAULTS), 5.0)
        is_dying = node.notice is not None or run.is_unwell(node)
        is_up = run.phase() is DesiredPhase.UP
        if is_up:
            self.wide.stopping(node)
        if is_up and is_sound and not is_dying and node.replica_id in run.gateway.in_rotation():
            self.violated("rotation", f"{node.replica_id} was told to end while in rotation")

    def stop_called(self, life: Life, node_id: str) -> None:
        """Check, by the records of the controller that orders it, that a node is not needed any more."""
        token = next((t for t, known in self.run.cloud.lives().items() if known.node.id == node_id), "")
        for record in life.world.store.replicas() if life.world is not None else ():
            if token_of(self.run.store.owner, record) == token and record.state not in _STOPPABLE:
                self.violated("stopped-alive", f"{node_id} of {record.id}, which is {record.state}")

    def check_stops_journalled(self) -> None:
        """Check that every stop that had its effect is in the journal: under its replica, or as an orphaned node's."""
        for node_id, replica_id in self._stopped.items():
            if not (self._journalled[replica_id] | self._journalled[node_id]) & {"stop", "stop-orphaned-node"}:
                self.violated("journal", f"{node_id} of {replica_id} was stopped and the journal does not say so")

    # What is written

    def wrote(self, life: Life, name: str, args: tuple[Any, ...]) -> None:
        """Look at what a life has just written."""
        match name:
            case "append":
                self._note_entries(args[0])
            case "put_replica":
                self.ages.note(args[0])
            case "settle_intents":
                for settlement in args[0]:
                    if settlement.replica is not None:
                        self.ages.note(settlement.replica)
            case "begin_replicas":
                self._begun_s.update({replica.id: self._placed_s(replica) for replica, _ in args[0]})
                self._check_cool_off(life, [replica for replica, _ in args[0]])
                self.wide.launching(args[0][0][0])
                self._check_backoff([replica for replica, _ in args[0]])
            case "put_memory":
                self._check_memory(args[1])
            case _:
                pass

    def _note_entries(self, entries: tuple[Any, ...]) -> None:
        for entry in entries:
            if entry.shadow:
                continue
            self._journalled[entry.subject.name].add(entry.action)
            self._check_deadline(entry)
            if entry.action == "assign":
                self._assigned_s = self.run.now_s
            if entry.action == "drain" and entry.code is ReasonCode.OUTDATED:
                self.wide.draining_outdated(entry.subject.name)
            if entry.action == "set-step":
                self._check_ladder(entry)

    def _check_deadline(self, entry: Any) -> None:
        """Check, by a clock that nobody sets, that nobody is given up before its time."""
        begun_s = self._begun_s.get(entry.subject.name)
        if begun_s is None or entry.code not in (ReasonCode.START_OVERDUE, ReasonCode.CREATE_OVERDUE):
            return
        if self.run.now_s - begun_s < self.run.start_timeout_s - _EARLY_S:
            self.violated("deadline", f"{entry.subject} {entry.code} {self.run.now_s - begun_s:.1f} s after its order")

    def _check_ladder(self, entry: Any) -> None:
        lane, step = entry.subject.name, LadderStep(str(entry.inputs["step"]))
        before = self._stepped.get(lane)
        self._stepped[lane] = (self.run.now_s, step)
        if before is None or step >= before[1] or entry.code is not ReasonCode.LADDER_STEP:
            return
        if "let go" in entry.reason or "pinned" in entry.reason or self.run.now_s - self.clock_set_s < 60.0:
            return
        if self.run.now_s - before[0] < _LADDER_HOLD_S - _EPSILON_S - 1.0:
            self.violated("ladder-hold", f"{lane} {before[1]} -> {step} after {self.run.now_s - before[0]:.1f} s")

    def _placed_s(self, replica: Replica) -> float:
        """Return when an order that is written down now was decided."""
        return self.run.now_s - max(0.0, (self.run.clock.now() - replica.created_at).total_seconds())

    def _check_cool_off(self, life: Life, replicas: list[Replica]) -> None:
        """Check that nothing is placed where the provider has just said that there is nothing."""
        for replica in replicas:
            placed_s = self._placed_s(replica)
            from_s, until_s = life.avoided_s.get(replica.offering, (0.0, 0.0))
            # A controller that finds its clock set, at its next tick, looks at everything anew.
            if from_s < self.clock_set_s + self.run.tick_s + ROTATION_S:
                continue
            if from_s + _EPSILON_S < placed_s < until_s - _EPSILON_S:
                ago_s = placed_s - from_s
                self.violated("cool-off", f"{replica.id} on {replica.offering}, which had no stock {ago_s:.1f} s ago")

    def _check_backoff(self, replicas: list[Replica]) -> None:
        memory, now = self.run.store.memory(FLEET), self.run.clock.now()
        for lane in {replica.lane for replica in replicas}:
            known = memory.lanes.get(lane)
            is_late = self.run.injector.is_open_since(STORE_FAULTS, ROTATION_S)
            if known is None or is_late or self.run.now_s - self.clock_set_s < self.run.tick_s + ROTATION_S:
                continue
            left_s = backoff_s(known.failures) - since_s(known.last_failure, now)
            elsewhere = any(r.lane == lane and r.reason.startswith("") and _is_elsewhere(r) for r in replicas)
            if left_s > 0.5 and not elsewhere:
                self.violated("backoff", f"{lane} launches {left_s:.1f} s early after {known.failures} failures")

    def _check_memory(self, memory: Memory) -> None:
        desired = self.run.store.fleet(FLEET)
        overridden = desired.overrides.replicas if desired is not None else {}
        for lane, known in memory.lanes.items():
            before = self._wanted.get(lane)
            is_free = lane in overridden or known.planned < 0 or before is None or known.planned != before.planned
            if before is None or is_free or known.wanted >= before.count:
                self._note_wanted(lane, known, before)
                continue
            self._check_cooldown(lane, known, before)
            self._note_wanted(lane, known, before)

    def _note_wanted(self, lane: str, known: LaneMemory, before: _Wanted | None) -> None:
        is_raised = before is None or known.wanted > before.count or known.planned != before.planned
        raised_s = self.run.now_s if is_raised or before is None else before.raised_s
        self._wanted[lane] = _Wanted(count=known.wanted, planned=known.planned, raised_s=raised_s)

    def _check_cooldown(self, lane: str, known: LaneMemory, before: _Wanted) -> None:
        held_s = self.run.now_s - before.raised_s
        is_set = self.run.now_s - self.clock_set_s < 120.0 or self.run.bounds_changed_s + 60.0 > self.run.now_s
        # A lane that gives a warm replica to another wants one less; nothing is given up.
        is_set |= self.run.now_s - self._assigned_s < ROTATION_S
        if not is_set and held_s < SCALE_DOWN_AFTER_S - 2.0:
            self.violated("cooldown", f"{lane} {before.count} -> {known.wanted} {held_s:.1f} s after it was raised")

    # Now and then

    def look(self) -> None:
        """Check what must hold of the fleet as it stands."""
        self._check_caps()
        self._check_rotation()
        self._check_generation()
        self.ages.check()
        for life in self.run.lives:
            if life.is_fenced and not life.is_over and not self.run.injector.is_open_since(STORE_FAULTS, _FENCED_S):
                fenced_s = self.run.now_s - self.run.fenced_at_s
                if fenced_s > _FENCED_S:
                    self.violated("fenced", f"epoch {life.epoch} still lives {fenced_s:.0f} s after it lost the fleet")

    def _check_rotation(self) -> None:
        """Check that who gets requests is ready, by the controller's own records."""
        run = self.run
        states = {record.id: record.state for record in run.records()}
        there = run.gateway.in_rotation() if run.gateway.answers and run.is_settled(ROTATION_S) else set()
        wrong = {rid for rid in there if states.get(rid) is not ReplicaState.READY}
        self._out_since_s = {rid: self._out_since_s.get(rid, run.now_s) for rid in wrong}
        for rid, since in self._out_since_s.items():
            if run.now_s - since > ROTATION_S:
                self.violated(
                    "rotation", f"{rid} is {states.get(rid, 'forgotten')} and in rotation for {ROTATION_S:g} s"
                )

    def _check_generation(self) -> None:
        """Check that the gateway works by what people asked for last."""
        run = self.run
        desired = run.store.fleet(FLEET)
        if desired is None or desired.phase is not DesiredPhase.UP or not run.gateway.answers:
            self._generation_since_s.clear()
            return
        self._generation_since_s.setdefault(desired.generation, run.now_s)
        table = run.gateway.table
        at_work = table.generation if table is not None else 0
        since_s_ = self._generation_since_s[desired.generation]
        late_s = run.now_s - max(since_s_, run.settled_since_s)
        if at_work < desired.generation and run.is_settled(0.0) and late_s > _GENERATION_S:
            self.violated(
                "old-table", f"generation {at_work} at work, {desired.generation} was asked for {late_s:.0f} s ago"
            )

    def table_taken(self, table: RoutingTable) -> None:
        """Check that nobody comes into rotation cold."""
        for route in table.replicas:
            if route.in_rotation and not self.run.engines.is_warm(route.host):
                self.violated("cold", f"{route.id} is in rotation and has completed nothing")

    # In the end

    def open_at_the_end(self) -> Iterator[str]:
        """Yield what keeps the fleet from being what was asked for; nothing: it is."""
        run = self.run
        desired, memory = run.store.fleet(FLEET), run.store.memory(FLEET)
        if desired is None:
            yield "the fleet was forgotten"
            return
        records = run.store.replicas(FLEET)
        live = [r for r in records if r.state.is_live]
        ready = Counter(r.lane for r in live if r.state is ReplicaState.READY)
        for r in live:
            if r.state is not ReplicaState.READY:
                yield f"{r.id} is {r.state} ({r.reason})"
        held = run.cloud.held()
        for spec in desired.profile.lanes:
            known = memory.lanes.get(spec.name)
            wanted = desired.overrides.replicas.get(spec.name, known.wanted if known else -1)
            wanted = max(spec.replicas.min, min(spec.replicas.max, wanted))
            if ready[spec.name] != wanted and not (ready[spec.name] < wanted and run.is_at_cap()):
                yield f"{spec.name} has {ready[spec.name]} of {wanted}"
        tokens = {token_of(run.store.owner, r) for r in live}
        yield from (f"{node.id} of {node.replica_id} belongs to nobody" for node in held if node.token not in tokens)
        if open_intents := run.store.open_intents(FLEET):
            yield f"intents are open: {', '.join(i.replica_id for i in open_intents)}"
        if run.gateway.in_rotation() != {r.id for r in live if r.state is ReplicaState.READY}:
            yield f"in rotation: {sorted(run.gateway.in_rotation())}"
        if kept := run.drains & {r.id for r in live}:
            yield f"asked to leave and still there: {', '.join(sorted(kept))}"
        yield from self.wide.open_at_the_end(desired, memory, live)
        if desired.overrides != run.overrides:
            yield f"people asked for {run.overrides}, and on record is {desired.overrides}"


def _is_elsewhere(replica: Replica) -> bool:
    """Whether it is ordered at once where another order found no stock."""
    return "no stock" in replica.reason or "quota" in replica.reason


def _names(nodes: list[Node]) -> str:
    return ", ".join(f"{n.replica_id}={n.id}" for n in nodes if n.state is not NodeState.GONE)

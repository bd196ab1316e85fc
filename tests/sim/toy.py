"""A toy world for `reconcile`: nodes boot slowly, die, get notices, fail to start; checkers watch every step."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.reconcile import reconcile
from fleetctl.core.transitions import create_refused, node_created, notice_seen, restart_answered, transition
from fleetctl.model.action import OneReplicaAction
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import (
    AbandonShared,
    AdmitReplica,
    AnyAction,
    AssignReplica,
    DrainReplica,
    LaunchReplica,
    LeaveUnverified,
    MarkBooting,
    MarkGone,
    Memory,
    PrepareShared,
    ReplicaAction,
    ReportAlert,
    ReportBreach,
    ReportRollout,
    RollBack,
    SetStep,
    StopOrphanedNode,
    StopReplica,
    TeardownShared,
    UndrainReplica,
    WarmReplica,
)
from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.model.eviction_report import ReportEviction, SetEvictionGuard
from fleetctl.model.gateway import GatewaySnapshot, LaneSnapshot, LaneWindow
from fleetctl.model.gateway_actions import StartGateway, StopGateway
from fleetctl.model.loop_report import ReportLoops
from fleetctl.model.node import Node, NodeState
from fleetctl.model.observation import EngineSignals, Observation, ObservedReplica
from fleetctl.model.profile import CapacitySpec, ControlSpec, ReplicaBounds
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.restart_action import RestartReplica
from fleetctl.model.slo import Quantiles, Validity
from fleetctl.model.stream_report import ReportStreamUnit
from fleetctl.model.subject import Subject
from fleetctl.ports.policy import Policy
from fleetctl.testing import samples
from fleetctl.testing.samples import EPOCH

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.reason import Reason


STATE = ReplicaState
BOUNDS = ReplicaBounds(min=1, max=4)
LEAVES_BEFORE_S = 10.0 + 9.0  # the margin, and what is planned for the longest requests
CAPS = CapacitySpec(max_nodes=8, max_cost_usd_per_hour=13.0)


@dataclass(slots=True)
class ToyNode:
    """The truth about one node."""

    id: str
    replica_id: str
    market: Market
    boots_at: float
    healthy_at: float  # infinity: never
    ends_at: float = float("inf")
    ended: bool = False
    exit_reason: str = ""
    notice_at: float | None = None
    taken_at: float = float("inf")
    unhealthy_until_s: float = 0.0
    warm_done_at: float | None = None
    warm: bool = False

    def is_healthy(self, now_s: float) -> bool:
        return not self.ended and now_s >= self.healthy_at and now_s >= self.unhealthy_until_s


@dataclass(slots=True)
class Toy:
    """The world, its dice, and everything that was done in it."""

    seed: int
    now_s: float = 0.0
    policy: Policy = reconcile
    desired: Desired = field(init=False)
    memory: Memory = field(default_factory=Memory)
    records: dict[str, Replica] = field(default_factory=dict)
    nodes: dict[str, ToyNode] = field(default_factory=dict)
    in_flight: dict[str, int] = field(default_factory=dict)
    launched: int = 0
    creating: dict[str, float] = field(default_factory=dict)  # replica -> when its create answers
    restarting: dict[str, float] = field(default_factory=dict)  # replica -> when its restart answers
    excluded: set[str] = field(default_factory=set)
    gateway_up_at: float | None = None
    listing_out_until: float = 0.0
    load: dict[str, float] = field(default_factory=dict)  # lane -> requests per second
    is_calm: bool = False
    log: list[str] = field(default_factory=list)
    dice: random.Random = field(init=False)
    is_down: bool = False
    noticed_seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        profile = samples.profile()
        lanes = (
            replace(profile.lane("short"), replicas=BOUNDS, spill_to=("long",)),
            replace(profile.lane("long"), replicas=BOUNDS),
            replace(profile.lane("long"), name="batch", replicas=BOUNDS, interruptible=True),
        )
        control = ControlSpec(scale_up_after_s=5.0, scale_down_after_s=30.0, start_timeout_s=40.0, drain_timeout_s=20.0)
        profile = replace(profile, lanes=lanes, capacity=CAPS, control=control)
        plans = (
            samples.lane_plan("short", on_demand=1, spot=1),
            samples.lane_plan("long", on_demand=1, spot=1),
            samples.lane_plan("batch", on_demand=0, spot=1),
        )
        self.desired = Desired(
            fleet="demo",
            phase=DesiredPhase.UP,
            generation=1,
            profile=profile,
            plan=replace(samples.plan(), lanes=plans),
            created_at=EPOCH,
            changed_at=EPOCH,
        )

    @property
    def can_restart(self) -> bool:
        """Whether its nodes' engines can be started anew: in half of all worlds."""
        return self.seed % 2 == 1

    # One step

    def step(self, dt_s: float = 1.0) -> None:
        """Let time pass and things happen; then look, decide, do, and check."""
        self.now_s += dt_s
        self._nature()
        if not self.is_calm:
            self._misfortune()
        seen = self._look()
        decision = self.policy(self.desired, seen, self.memory, seen.at)
        self.memory = decision.memory
        self._note_notices(seen)
        for action in decision.actions:
            self.log.append(f"{self.now_s:.0f} {type(action).__name__} {action}")
            self._do(action)
        self.is_down = decision.is_down
        self._check(decision.reasons)

    def _note_notices(self, seen: Observation) -> None:
        for replica in seen.replicas:
            noted = notice_seen(replica.record, replica.notice, deadline=replica.notice_deadline)
            self.records[replica.record.id] = noted

    def live(self) -> list[Replica]:
        return [record for record in self.records.values() if record.state.is_live]

    def in_rotation(self) -> list[Replica]:
        return [record for record in self.records.values() if record.state is STATE.READY]

    def living_nodes(self) -> list[ToyNode]:
        return [node for node in self.nodes.values() if not node.ended]

    # What happens by itself

    def _nature(self) -> None:
        for node in self.living_nodes():
            if self.now_s >= min(node.ends_at, node.taken_at):
                node.ended = True
                node.exit_reason = node.exit_reason or ("interrupted" if self.now_s >= node.taken_at else "exit 0")
            if node.warm_done_at is not None and self.now_s >= node.warm_done_at:
                node.warm, node.warm_done_at = node.is_healthy(self.now_s), None
        for replica_id in self._due(self.creating):
            self._created(replica_id)
        for replica_id in self._due(self.restarting):
            self._restarted(replica_id)
        self._adopt()
        for record in self.live():
            if record.state is STATE.DRAINING:
                self.excluded.add(record.id)
                left = self.in_flight.get(record.id, 0)
                self.in_flight[record.id] = max(0, left - self.dice.randrange(2))
            elif record.state is STATE.READY:
                self.excluded.discard(record.id)
                self.in_flight[record.id] = self.dice.randrange(3)

    def _due(self, answers_at: dict[str, float]) -> list[str]:
        due = [replica_id for replica_id, at_s in answers_at.items() if self.now_s >= at_s]
        for replica_id in due:
            del answers_at[replica_id]
        return due

    def _created(self, replica_id: str) -> None:
        record = self.records[replica_id]
        step = self.dice.random()
        if not self.is_calm and step < 0.08:
            self.records[replica_id] = create_refused(record, fault="no stock", now=self.at(self.now_s), is_final=False)
            return
        boots_at = self.now_s + self.dice.uniform(1, 5)
        healthy_at = float("inf") if not self.is_calm and self.dice.random() < 0.06 else boots_at + 3.0
        node_id = f"node-{replica_id}"
        assert node_id not in self.nodes, f"{replica_id} was given two nodes"
        self.nodes[node_id] = ToyNode(
            id=node_id, replica_id=replica_id, market=record.market, boots_at=boots_at, healthy_at=healthy_at
        )
        if not self.is_calm and step < 0.13:
            return  # the answer is lost: the node is there, and nobody has been told
        self._answered(self.nodes[node_id])

    def _restarted(self, replica_id: str) -> None:
        record, node = self.records[replica_id], self.nodes[f"node-{replica_id}"]
        if not record.is_restarting:
            return  # told to end meanwhile
        fault = "no agent answers" if not self.is_calm and self.dice.random() < 0.1 else ""
        if not fault:
            node.healthy_at, node.unhealthy_until_s = self.now_s + 3.0, 0.0
        self.records[replica_id] = restart_answered(record, fault=fault)

    def _adopt(self) -> None:
        """Find by their tokens the nodes whose create was not answered, and that some ended before anybody knew."""
        if self.now_s < self.listing_out_until:
            return
        for node in self.nodes.values():
            record = self.records[node.replica_id]
            if record.state is not STATE.PENDING or record.id in self.creating or record.fault:
                continue
            if node.ended:
                gone = create_refused(record, fault="its node is gone", now=self.at(self.now_s), is_final=False)
                self.records[record.id] = gone
            else:
                self._answered(node)

    def _answered(self, node: ToyNode) -> None:
        record, now = self.records[node.replica_id], self.at(self.now_s)
        self.records[record.id] = node_created(record, self._node(node), reason="created", now=now)

    def _misfortune(self) -> None:
        dice = self.dice
        for node in self.living_nodes():
            if dice.random() < 0.004:
                node.ends_at, node.exit_reason = self.now_s, "signal 9"
            if node.market is Market.SPOT and node.notice_at is None and dice.random() < 0.005:
                notice_s = dice.choice([0.0, 10.0, 30.0, 120.0])
                node.notice_at, node.taken_at = self.now_s, self.now_s + notice_s
            if dice.random() < 0.004:
                node.unhealthy_until_s = self.now_s + dice.choice([3.0, 12.0, 90.0])
        if self.gateway_up_at is not None and dice.random() < 0.004:
            self.gateway_up_at = None
        if dice.random() < 0.004:
            self.listing_out_until = self.now_s + dice.uniform(3, 60)
        if dice.random() < 0.02:
            self.load[dice.choice(["short", "long", "batch"])] = dice.choice([0.0, 0.5, 1.5, 3.0, 6.0])
        self._people()

    def _people(self) -> None:
        dice = self.dice
        if dice.random() < 0.004 and self.live():
            record = dice.choice(sorted(self.live(), key=lambda r: r.id))
            self.records[record.id] = replace(record, drain_requested=True)
        if dice.random() < 0.004:
            lane = dice.choice(["short", "long", "batch"])
            wanted = {} if dice.random() < 0.5 else {lane: dice.randrange(7)}
            overrides = replace(self.desired.overrides, replicas=wanted)
            self.desired = replace(self.desired, overrides=overrides)
        if self.can_restart and dice.random() < 0.004 and self.in_rotation():
            record = dice.choice(sorted(self.in_rotation(), key=lambda r: r.id))
            followed = record.restart.orders if record.restart is not None else 0
            restarts = {**self.desired.overrides.restarts, record.id: followed + 1}
            self.desired = replace(self.desired, overrides=replace(self.desired.overrides, restarts=restarts))

    # What is seen

    def at(self, seconds: float) -> datetime:
        return EPOCH + timedelta(seconds=seconds)

    def _look(self) -> Observation:
        listed = self.now_s >= self.listing_out_until
        answers = self.gateway_up_at is not None and self.now_s >= self.gateway_up_at
        known = {record.id for record in self.live()}
        replicas = [self._seen(record, listed=listed) for record in self.live()]
        self.dice.shuffle(replicas)
        return Observation(
            at=self.at(self.now_s),
            listing_ok=listed,
            replicas=tuple(replicas),
            gateway=self._snapshot() if answers else None,
            gateway_validity=Validity.OK if answers else Validity.NONE,
            gateway_alive=self.gateway_up_at is not None,
            orphaned_nodes=tuple(self._node(n) for n in self.living_nodes() if n.replica_id not in known)
            if listed
            else (),
        )

    def _seen(self, record: Replica, *, listed: bool) -> ObservedReplica:
        node = self.nodes.get(f"node-{record.id}") if listed else None
        truth = self.nodes.get(f"node-{record.id}")
        probed = truth is not None and record.state in (STATE.BOOTING, STATE.WARMING, STATE.READY, STATE.DRAINING)
        notice = node is not None and node.notice_at is not None and not node.ended
        if node is not None and notice:
            self.noticed_seen.add(record.id)
        return ObservedReplica(
            record=record,
            node=None if node is None else self._node(node).state,
            exit_reason=node.exit_reason if node else "",
            creating=record.id in self.creating,
            can_restart=self.can_restart,
            restarting=record.id in self.restarting,
            healthy=truth.is_healthy(self.now_s) if probed and truth else None,
            warming=truth is not None and truth.warm_done_at is not None,
            warmed=truth is not None and truth.warm,
            excluded=record.id in self.excluded,
            in_flight=self.in_flight.get(record.id, 0),
            notice_deadline=self.at(node.taken_at) if node is not None and notice else None,
            engine=self._engine(record),
        )

    def _engine(self, record: Replica) -> EngineSignals:
        """Return an engine's figures: whatever a lane is offered beyond 1 rps a replica waits in it."""
        if record.state is not STATE.READY:
            return EngineSignals()
        ready = sum(other.lane == record.lane for other in self.in_rotation())
        waiting = max(0.0, self.load.get(record.lane, 0.5) - ready) / ready
        return EngineSignals(validity=Validity.OK, at=self.at(self.now_s), running=1, waiting=round(10 * waiting))

    def _node(self, node: ToyNode) -> Node:
        if node.ended:
            state = NodeState.GONE
        else:
            state = NodeState.RUNNING if self.now_s >= node.boots_at else NodeState.STARTING
        return Node(
            id=node.id,
            token=node.id,
            owner="owner-1",
            fleet="demo",
            replica_id=node.replica_id,
            state=state,
            market=node.market,
            host="127.0.0.1",
            port=1,
            created_at=EPOCH,
        )

    def _snapshot(self) -> GatewaySnapshot:
        return GatewaySnapshot(
            fleet="demo",
            at=self.at(self.now_s),
            started_at=EPOCH,
            table_version=1,
            pid=1,
            lanes=tuple(self._lane(spec.name) for spec in self.desired.profile.lanes),
            replicas=(),
        )

    def _lane(self, name: str) -> LaneSnapshot:
        """Return figures that get worse as load nears what the lane's ready replicas carry (1 rps each)."""
        load = self.load.get(name, 0.5)
        ready = sum(record.lane == name for record in self.in_rotation())
        crowding = load / ready if ready else 2.5
        ttft_s = 0.1 if crowding <= 1 else 0.3 * crowding
        quantiles = Quantiles(count=200, p50_s=ttft_s / 2, p95_s=ttft_s, p99_s=ttft_s, max_s=ttft_s)
        windows = tuple(
            LaneWindow(seconds=s, offered=round(load * s), good=100, finished=100, ttft=quantiles)
            for s in (10.0, 60.0, 300.0, 3600.0)
        )
        return LaneSnapshot(name=name, in_flight=0, queued=0, oldest_wait_s=0.0, windows=windows)

    # What is done

    def _do(self, action: AnyAction) -> None:
        match action:
            case LaunchReplica():
                self._launch(action)
            case StartGateway():
                assert self.gateway_up_at is None, "a second gateway was started"
                self.gateway_up_at = self.now_s + 1.0
            case StopGateway():
                self.gateway_up_at = None
            case StopOrphanedNode():
                self.nodes[action.node_id].ends_at = self.now_s + 1.0
            case (
                SetStep()
                | ReportBreach()
                | ReportAlert()
                | ReportStreamUnit()
                | ReportLoops()
                | ReportEviction()
                | SetEvictionGuard()
                | ReportRollout()
                | RollBack()
            ):
                pass
            case LeaveUnverified():
                raise AssertionError("its listings are complete")
            case PrepareShared() | TeardownShared() | AbandonShared():
                raise AssertionError("nothing is shared here")
            case OneReplicaAction():
                self._change(self.records[action.replica_id], action)

    def _launch(self, action: LaunchReplica) -> None:
        self.launched += 1
        replica_id = f"r{self.launched}"
        spot = action.market is Market.SPOT
        self.records[replica_id] = samples.replica(
            replica_id,
            lane=action.lane,
            market=action.market,
            replaces=action.replaces,
            price_usd_per_hour=0.7444 if spot else 1.861,
            created_at=self.at(self.now_s),
            changed_at=self.at(self.now_s),
        )
        self.creating[replica_id] = self.now_s + self.dice.uniform(0.5, 4.0)

    def _change(self, record: Replica, action: ReplicaAction) -> None:
        node = self.nodes.get(f"node-{record.id}")
        match action:
            case WarmReplica():
                if node is not None:
                    node.warm, node.warm_done_at = False, self.now_s + 1.5
            case AdmitReplica():
                assert node is not None
                assert node.warm, f"{record.id} was admitted cold"
            case StopReplica():
                if node is not None:
                    node.ends_at = self.now_s + min(action.grace_s, 2.0)
            case MarkBooting():
                if node is not None:
                    node.warm, node.warm_done_at = False, None
            case RestartReplica():
                assert node is not None
                node.warm, node.warm_done_at = False, None
                self.restarting[record.id] = self.now_s + self.dice.uniform(0.5, 4.0)
            case DrainReplica() | UndrainReplica() | AssignReplica() | MarkGone():
                pass
        self.records[record.id] = transition(record, action, now=self.at(self.now_s))

    # What must hold

    def _check(self, reasons: dict[Subject, tuple[Reason, ...]]) -> None:
        live = self.live()
        holding = len({r.id for r in live} | {n.replica_id for n in self.living_nodes()})
        assert holding <= CAPS.max_nodes, f"{holding} nodes held"
        cost = sum(record.price_usd_per_hour for record in live)
        assert cost <= (CAPS.max_cost_usd_per_hour or 0) + 1e-6, f"${cost} an hour"
        for spec in self.desired.profile.lanes:
            assert reasons[Subject.lane(spec.name)], f"{spec.name} has no reason"
            staying = [r for r in live if r.lane == spec.name and r.state.counts_as_capacity and not r.drain_requested]
            # What is taken has its substitute already.
            staying = [r for r in staying if r.notice_deadline is None]
            # What may yet recover has its substitute already, and one that did outlives it: an order cannot be undone.
            staying = [r for r in staying if not r.is_recovering and r.state is not ReplicaState.PENDING]
            # A substitute that starts on spot runs beside the fallback it was ordered in place of.
            starting = {r.replaces for r in staying if r.market is Market.SPOT and r.state is not ReplicaState.READY}
            twice = sum(r.id in starting and r.market is Market.ON_DEMAND for r in staying)
            assert len(staying) - twice <= spec.replicas.max, f"{spec.name} has {len(staying)}"
        for record in self.in_rotation():
            node = self.nodes[f"node-{record.id}"]
            assert node.warm, f"{record.id} serves cold"
            is_due = record.id in self.noticed_seen and node.taken_at - self.now_s <= LEAVES_BEFORE_S
            assert not is_due, f"{record.id} serves though its node is taken soon"

"""The controller under virtual time: it has the policy decide on what is observed, and carries the decision out."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl import plugins
from fleetctl.controller.table import build_table
from fleetctl.core.dispatch.ordering import order_lanes
from fleetctl.core.hazard import Hazards
from fleetctl.core.overload import effective_step
from fleetctl.core.pending import pending_replica
from fleetctl.core.slo.budget import count_gateway, read_budgets
from fleetctl.core.transitions import create_refused, is_lawful, node_created, notice_seen, stop_taken, transition
from fleetctl.engine_kit.priorities import priority_sign
from fleetctl.model.action import OneReplicaAction
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import (
    AdmitReplica,
    LaneMemory,
    LaunchReplica,
    MarkBooting,
    MarkGone,
    Memory,
    StopReplica,
    WarmReplica,
)
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.ports.engine import visible_engine
from fleetctl.sim.engine import SimulatedEngine
from fleetctl.sim.ranks import SimulatedRanks

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.model.budget import BudgetLedger
    from fleetctl.model.decision import AnyAction, ReplicaAction
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation
    from fleetctl.ports.engine import Engine
    from fleetctl.ports.policy import Policy
    from fleetctl.sim.event_heap import EventHeap
    from fleetctl.sim.instance import EngineInstance
    from fleetctl.sim.nodes import SimulatedNode
    from fleetctl.sim.observer import SimulatedObserver
    from fleetctl.sim.provider import SimulatedProvider


class SimulatedController:
    """Keeps the records of a fleet whose nodes are computed."""

    def __init__(  # noqa: PLR0913  # what it works with, each named
        self,
        desired: Desired,
        policy: Policy,
        *,
        provider: SimulatedProvider,
        observer: SimulatedObserver,
        dispatcher: Dispatcher,
        heap: EventHeap,
        instances: dict[str, EngineInstance],
        engine_of: Callable[[str], Engine],
        on_end: Callable[[SimulatedNode], None],
    ) -> None:
        self.desired = desired
        self.records: dict[str, Replica] = {}  # the live ones, the oldest first
        self.memory = Memory()
        self.decisions: Counter[str] = Counter()  # actions, by name and reason code
        self._policy = policy
        self._provider = provider
        self._observer = observer
        self._dispatcher = dispatcher
        self._heap = heap
        self._instances = instances
        self._engine_of = engine_of
        self._on_end = on_end
        self._ledgers: dict[str, BudgetLedger] = {}
        self._launched = 0
        self._refused: dict[str, str] = {}
        self._published: tuple[object, ...] = ()
        self._has_changed = True

    def settle(self, counts: dict[str, int]) -> None:
        """Begin with so many replicas of each lane in rotation, spot where the plan has them on spot."""
        now, lanes = self._observer.at(0.0), {}
        for lane, count in counts.items():
            planned = self.desired.plan.lane(lane)
            for number in range(count):
                market = Market.SPOT if number >= planned.on_demand and planned.spot else Market.ON_DEMAND
                action = LaunchReplica(lane=lane, market=market, code=ReasonCode.PLANNED, reason="was there")
                record = self._requested(action)
                node = self._provider.create(record, self._engine(lane), 0.0, now) if record is not None else None
                if record is None or node is None:
                    break
                boot_s = node.healthy_s
                node.requested_s = node.healthy_s = 0.0
                named = node_created(record, node.listed(record, 0.0, now), reason=record.reason, now=now)
                # It has served, and took its time to start: without either, the gateway would forget one that recovers.
                created_at = now - timedelta(seconds=boot_s) if math.isfinite(boot_s) else now
                served = replace(named, state=ReplicaState.READY, created_at=created_at, ready_at=now)
                self.records[record.id] = served
            lanes[lane] = LaneMemory(wanted=count, planned=planned.replicas, had_ready=count)
        self.memory = Memory(lanes=lanes)

    def tick(self) -> None:
        """Observe, decide, act, publish."""
        now_s = self._heap.now_s
        for node in self._provider.interrupt(now_s):
            self.end(node, node.exit_reason or "interrupted")
        observation = self._observer.observe(self.records.values(), now_s, refused=self._refused)
        for replica in observation.replicas:
            if replica.notice is not None:
                self._note(notice_seen(replica.record, replica.notice, deadline=replica.notice_deadline))
        observation = self._with_budgets(observation)
        decision = self._policy(self.desired, observation, self.memory, observation.at)
        self.memory, self._refused = decision.memory, {}
        for action in decision.actions:
            self.decisions[f"{action.name} {action.code.value}"] += 1
            if not action.shadow:
                self._apply(action, now_s)
        self.publish()

    def _with_budgets(self, observation: Observation) -> Observation:
        profile = self.desired.profile
        self._ledgers = count_gateway(self._ledgers, observation.gateway, profile, observation.at)
        return replace(observation, budgets=read_budgets(self._ledgers, profile.objective, observation.at))

    def end(self, node: SimulatedNode, reason: str) -> None:
        """End a node and its engine; what it carried is lost."""
        if not node.ended:
            node.ended, node.exit_reason = True, reason
            self._on_end(node)

    def publish(self) -> None:
        """Give the gateway a new table where anything in it has changed."""
        memory = self.memory.lanes
        steps = tuple(
            (name, effective_step(self.desired, name, lane), lane.lost_since is not None)
            for name, lane in memory.items()
        )
        if not self._has_changed and steps == self._published:
            return
        self._published, self._has_changed = steps, False
        observer = self._observer
        observer.table_version += 1
        table = build_table(
            self.desired,
            self.records.values(),
            self.memory,
            engine_of=self._engine_of,
            key_hashes=(),
            version=observer.table_version,
        )
        observer.excluded = {row.id for row in table.replicas if not row.in_rotation}
        self._dispatcher.apply(table)
        order_lanes(self._dispatcher, plugins.load_order)

    # What is done.

    def _apply(self, action: AnyAction, now_s: float) -> None:
        match action:
            case LaunchReplica():
                self._launch(action, now_s)
            case OneReplicaAction():
                self._change(action, now_s)
            case _:
                pass  # steps are in the memory; the gateway is always there, and nothing is shared

    def _change(self, action: ReplicaAction, now_s: float) -> None:
        record = self.records.get(action.replica_id)
        if record is None or not is_lawful(record, action):
            return
        node, now = self._provider.nodes.get(record.id), self._observer.at(now_s)
        moved = transition(record, action, now=now)
        match action:
            case WarmReplica() if node is not None:
                node.warm_done_s = now_s + self._provider.spec.warm_s
            case AdmitReplica():
                self._observer.admitted(record.id)
            case MarkBooting() if node is not None:
                node.warm_done_s = None
            case StopReplica() if node is not None:
                self._provider.stop(node, now_s, action.grace_s)
                moved = stop_taken(moved, now=now)
            case MarkGone():
                self._provider.nodes.pop(record.id, None)
            case _:
                pass
        self._note(moved)

    def _note(self, record: Replica) -> None:
        if record.state.is_live:
            if self.records[record.id] is not record:
                self.records[record.id] = record
                self._has_changed = True
            return
        del self.records[record.id]
        self._observer.ended(record)
        self._has_changed = True

    def _launch(self, action: LaunchReplica, now_s: float) -> None:
        record = self._requested(action)
        if record is None:
            if action.may_fall_back:
                self._refused[action.lane] = "no offering can be had"
            return
        self.records[record.id] = record
        self._has_changed = True
        self._observer.creating.add(record.id)
        self._heap.at(now_s + self._provider.spec.create_s, lambda: self._answered(record.id, action))

    def _answered(self, replica_id: str, action: LaunchReplica) -> None:
        """Take the provider's answer to an order: a node, or none, and then the next offering is tried."""
        now_s, now = self._heap.now_s, self._observer.at(self._heap.now_s)
        self._observer.creating.discard(replica_id)
        record = self.records.get(replica_id)
        if record is None or record.state is not ReplicaState.PENDING:
            return
        startup_s = self._instances[record.lane].startup_s
        node = self._provider.create(record, self._engine(record.lane), now_s, now, startup_s=startup_s)
        if node is None:
            self._note(create_refused(record, fault="no stock", now=now, is_final=True))
            self._launch(action, now_s)
            return
        self._note(node_created(record, node.listed(record, now_s, now), reason="created", now=now))

    def _requested(self, action: LaunchReplica) -> Replica | None:
        now = self._observer.at(self._heap.now_s)
        hazards = Hazards(now=now, records=self.memory.offerings)
        offering = self._provider.choose(self.desired, action, tuple(self.records.values()), hazards)
        if offering is None:
            return None
        self._launched += 1
        lane = self.desired.profile.lane(action.lane)
        return pending_replica(
            f"r{self._launched}",
            self.desired,
            action,
            (offering,),
            continues_streams=visible_engine(self._engine_of, lane).capabilities.continues_streams,
            priority_sign=priority_sign(lane, self.desired.plan.lane(action.lane).launch, self._engine_of),
            now=now,
        )

    def _engine(self, lane: str) -> SimulatedEngine | SimulatedRanks:
        instance = self._instances[lane]
        made = [
            SimulatedEngine(
                self._heap, instance.model, instance.limits, speed=instance.speed, frontend_s=instance.frontend_s
            )
            for _ in range(instance.ranks)
        ]
        return made[0] if len(made) == 1 else SimulatedRanks(made)

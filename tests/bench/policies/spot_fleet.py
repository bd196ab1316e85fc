"""A fleet of one lane on a replayed spot market, decided by the real reconcile, placement and transitions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from fleetctl.core.hazard import Hazards
from fleetctl.core.placement import ranked_offerings
from fleetctl.core.reconcile import reconcile
from fleetctl.core.transitions import create_refused, node_created, notice_seen, stop_taken, transition
from fleetctl.model.action import OneReplicaAction
from fleetctl.model.catalogue import Market, Offering
from fleetctl.model.decision import Decision, LaunchReplica, Memory, StopReplica, WarmReplica
from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.model.gateway import GatewaySnapshot, LaneSnapshot, LaneWindow
from fleetctl.model.node import Node, NodeState, Notice, NoticeKind
from fleetctl.model.observation import Observation, ObservedReplica
from fleetctl.model.profile import CapacitySpec, ReplicaBounds, SpotPolicy
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.slo import Validity
from fleetctl.testing import samples
from fleetctl.testing.samples import EPOCH
from tests.bench.policies.spot_world import ON_DEMAND_PRICE, ON_DEMAND_ZONE, SPOT_PRICE, SpotNode, SpotWorld

_LANE = "short"
# As the controller's own: what had no stock is left alone for so long.
_REFUSED_S = 180.0
# While nothing happens the fleet is looked at this often; after any action every second.
_QUIET_S = 15.0
# Where a spare is lawful the load says that all that are wanted are needed beside it: nine tenths of what they carry.
_LOAD_SHARE = 0.9
_SPARE_OBJECTIVE = 0.999
_WINDOWS_S = (10.0, 60.0, 300.0, 3600.0)
_PROBED = (ReplicaState.BOOTING, ReplicaState.WARMING, ReplicaState.READY, ReplicaState.DRAINING)


def spot_fleet(wanted: int, *, offerings: tuple[Offering, ...], on_demand: int = 0, spares: int = 0) -> Desired:
    """Return a fleet whose one lane wants so many replicas, spot beyond the on-demand baseline.

    Of `spares` more, where losses would break an objective of 99.9 %, the policy may keep one.
    """
    profile = samples.profile()
    if spares:
        profile = replace(profile, objective=replace(profile.objective, fraction=_SPARE_OBJECTIVE))
    bounds = ReplicaBounds(min=wanted, max=wanted + spares)
    lane = replace(profile.lane(_LANE), replicas=bounds, spot=SpotPolicy.ALL)
    profile = replace(profile, lanes=(lane,), capacity=CapacitySpec(max_nodes=4 * wanted))
    plan = samples.lane_plan(_LANE, on_demand=on_demand, spot=wanted - on_demand)
    by_market = {offering.market: offering for offering in reversed(offerings)}
    plan = replace(plan, offering=by_market[Market.ON_DEMAND], spot_offering=by_market[Market.SPOT])
    return Desired(
        fleet="demo",
        phase=DesiredPhase.UP,
        generation=1,
        profile=profile,
        plan=replace(samples.plan(), lanes=(plan,)),
        created_at=EPOCH,
        changed_at=EPOCH,
    )


def sold_in(zones: list[str], *, boot_s: float, notice_s: float) -> tuple[Offering, ...]:
    """Return one instance type on spot in every zone, and on demand."""
    base = samples.offering(boot_s=boot_s)
    spot = [
        replace(base, zone=zone, market=Market.SPOT, price_usd_per_hour=SPOT_PRICE, notice_s=notice_s) for zone in zones
    ]
    return (*spot, replace(base, zone=ON_DEMAND_ZONE, price_usd_per_hour=ON_DEMAND_PRICE))


@dataclass(slots=True)
class Fleet:
    """The records, and the world they are about."""

    world: SpotWorld
    wanted: int
    spares: int = 0
    memory: Memory = field(default_factory=Memory)
    records: dict[str, Replica] = field(default_factory=dict)
    nodes: dict[str, SpotNode] = field(default_factory=dict)  # replica id -> its node
    warmed: set[str] = field(default_factory=set)
    refused: dict[str, datetime] = field(default_factory=dict)
    actions: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    desired: Desired = field(init=False)
    offerings: tuple[Offering, ...] = field(init=False)

    def __post_init__(self) -> None:
        world = self.world
        self.offerings = sold_in(sorted(world.trace.changes), boot_s=world.boot_s, notice_s=world.notice_s)
        self.desired = spot_fleet(self.wanted, offerings=self.offerings, spares=self.spares)

    def tick(self) -> float:
        """Observe, decide, apply; return when to look again."""
        seen = self._observe()
        decision = reconcile(self.desired, seen, self.memory, seen.at)
        self.memory = decision.memory
        for replica in seen.replicas:
            record = self.records[replica.record.id]
            self.records[record.id] = notice_seen(record, replica.notice, deadline=replica.notice_deadline)
        for action in decision.actions:
            self._apply(action, decision)
        is_settling = bool(decision.actions) or any(
            r.state is not ReplicaState.READY and r.state is not ReplicaState.BOOTING for r in self._live()
        )
        leaving = (decision.requeue_at - seen.at).total_seconds()
        return self.world.now_s + (1.0 if is_settling or 0 < leaving < 1.0 or self._noticed() else _QUIET_S)

    def ready(self) -> int:
        """Return how many are in rotation on a node that is there."""
        return sum(
            r.state is ReplicaState.READY and not self.nodes[r.id].is_over for r in self._live() if r.id in self.nodes
        )

    def _live(self) -> list[Replica]:
        return [r for r in self.records.values() if r.state.is_live]

    def _noticed(self) -> bool:
        return any(r.notice_deadline is not None for r in self._live())

    def at(self, seconds: float) -> datetime:
        """Return the instant of a second of the trace."""
        return EPOCH + timedelta(seconds=seconds)

    def _observe(self) -> Observation:
        now = self.at(self.world.now_s)
        self.refused = {k: at for k, at in self.refused.items() if (now - at).total_seconds() < _REFUSED_S}
        lane = LaneSnapshot(name=_LANE, in_flight=0, queued=0, oldest_wait_s=0.0, windows=self._load())
        gateway = GatewaySnapshot(
            fleet="demo", at=now, started_at=EPOCH, table_version=1, pid=1, lanes=(lane,), replicas=()
        )
        return Observation(
            at=now,
            listing_ok=True,
            replicas=tuple(self._seen(record) for record in self._live()),
            gateway=gateway,
            gateway_validity=Validity.OK,
            gateway_alive=True,
            offerings=self.offerings,
            refused_offerings=dict(self.refused),
        )

    def _load(self) -> tuple[LaneWindow, ...]:
        if not self.spares:
            return ()  # the lane's bounds say how many it has
        rps = _LOAD_SHARE * self.desired.plan.lane(_LANE).rps
        return tuple(LaneWindow(seconds=seconds, offered=round(rps * seconds)) for seconds in _WINDOWS_S)

    def _seen(self, record: Replica) -> ObservedReplica:
        node, world = self.nodes.get(record.id), self.world
        if node is None:
            return ObservedReplica(record=record, node=None)
        is_up = not node.is_over and world.now_s >= node.up_s
        deadline = None if node.noticed_s is None else self.at(node.ends_s)
        notice = None if deadline is None else Notice(kind=NoticeKind.INTERRUPTION, deadline=deadline, is_certain=True)
        state = NodeState.GONE if node.is_over else NodeState.RUNNING if is_up else NodeState.STARTING
        return ObservedReplica(
            record=record,
            node=state,
            exit_reason="interrupted" if node.is_over else "",
            healthy=is_up if record.state in _PROBED else None,
            warming=record.state is ReplicaState.WARMING,
            warmed=record.id in self.warmed,
            excluded=record.state is not ReplicaState.READY,
            notice=notice,
            notice_deadline=deadline,
        )

    def _apply(self, action: object, decision: Decision) -> None:
        self.actions[type(action).__name__] += 1
        self.log.append(f"{self.world.now_s:9.0f} {type(action).__name__}: {getattr(action, 'reason', '')}")
        if isinstance(action, LaunchReplica):
            self._launch(action, decision)
        elif isinstance(action, OneReplicaAction):
            record, now = self.records[action.replica_id], self.at(self.world.now_s)
            after = transition(record, action, now=now)  # type: ignore[arg-type]
            if isinstance(action, WarmReplica):
                self.warmed.add(record.id)
            if isinstance(action, StopReplica) and record.id in self.nodes:
                self.world.stop(self.nodes[record.id])
                after = stop_taken(after, now=now)
            self.records[record.id] = after

    def _launch(self, action: LaunchReplica, decision: Decision) -> None:
        """Order as the controller does: from the best offering, and where it has no stock from the next."""
        now = self.at(self.world.now_s)
        while True:
            ranking = ranked_offerings(
                self.desired.plan.lane(_LANE),
                self._live(),
                action.market,
                self.offerings,
                capacity=self.desired.profile.capacity,
                avoid=frozenset(self.refused),
                hazards=Hazards(now=now, records=decision.memory.offerings),
                may_fall_back=action.may_fall_back,
                most=1,
            )
            if not ranking.offerings:
                return
            sold = ranking.offerings[0]
            record = self._record(action, sold, now)
            node = self.world.create(sold.zone, sold.market)
            if node is not None:
                self.nodes[record.id] = node
                self.records[record.id] = node_created(record, self._node(record, node), reason="", now=now)
                return
            self.refused[sold.key] = now
            self.records[record.id] = create_refused(record, fault="no stock", now=now, is_final=True)

    def _record(self, action: LaunchReplica, sold: Offering, now: datetime) -> Replica:
        return samples.replica(
            f"r{len(self.records) + 1}",
            lane=_LANE,
            market=sold.market,
            offering=sold.key,
            gpu=sold.gpu,
            price_usd_per_hour=sold.price_usd_per_hour,
            created_at=now,
            changed_at=now,
            reason=action.reason,
            replaces=action.replaces,
        )

    def _node(self, record: Replica, node: SpotNode) -> Node:
        return Node(
            id=f"node-{node.id}",
            token=f"token-{node.id}",
            owner="owner-1",
            fleet="demo",
            replica_id=record.id,
            state=NodeState.STARTING,
            market=node.market,
            host="127.0.0.1",
            port=1,
            created_at=record.created_at,
        )

"""Small worlds to decide on, and the world a decision should lead to."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from fleetctl.core.reconcile import reconcile
from fleetctl.core.slo.burn import BURN_WINDOWS_S
from fleetctl.core.transitions import transition
from fleetctl.model.action import OneReplicaAction
from fleetctl.model.budget import ErrorBudget, LaneBudget, RequestCount
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import (
    AdmitReplica,
    AnyAction,
    AssignReplica,
    Decision,
    DrainReplica,
    LaunchReplica,
    MarkBooting,
    MarkGone,
    Memory,
    ReplicaAction,
    StopOrphanedNode,
    StopReplica,
    UndrainReplica,
    WarmReplica,
)
from fleetctl.model.desired import Desired, DesiredPhase, Overrides
from fleetctl.model.gateway import GatewaySnapshot, LaneSnapshot, LaneWindow
from fleetctl.model.gateway_actions import StartGateway, StopGateway
from fleetctl.model.node import Node, NodeState
from fleetctl.model.observation import Observation, ObservedReplica
from fleetctl.model.profile import ControlSpec, LaneSpec, Mode, Profile, ReplicaBounds
from fleetctl.model.reason import join_messages
from fleetctl.model.replica import ReplicaState
from fleetctl.model.restart_action import RestartReplica
from fleetctl.model.slo import LatencyTarget, Quantiles, TargetCount, Validity
from fleetctl.model.subject import Subject
from fleetctl.testing import samples
from fleetctl.testing.samples import EPOCH

__all__ = ["EPOCH"]

A = TypeVar("A", bound=AnyAction)


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def lane_spec(name: str = "short", **changes: Any) -> LaneSpec:
    return replace(samples.profile().lane(name), **changes)


def profile(*lanes: LaneSpec, control: ControlSpec | None = None, **changes: Any) -> Profile:
    base = samples.profile()
    return replace(base, lanes=lanes or base.lanes, control=control or ControlSpec(), **changes)


def desired(
    *lanes: LaneSpec,
    phase: DesiredPhase = DesiredPhase.UP,
    control: ControlSpec | None = None,
    mode: Mode = Mode.ACTIVE,
    overrides: Overrides | None = None,
    counts: dict[str, tuple[int, int]] | None = None,
    **changes: Any,
) -> Desired:
    """Return a fleet of `lanes` (else the sample's); `counts` is lane -> (on-demand, spot) of the plan."""
    spec = profile(*lanes, control=replace(control or ControlSpec(), mode=mode), **changes)
    counts = counts or {}
    plans = tuple(
        samples.lane_plan(lane.name, on_demand=counts.get(lane.name, (2, 0))[0], spot=counts.get(lane.name, (2, 0))[1])
        for lane in spec.lanes
    )
    return Desired(
        fleet=spec.name,
        phase=phase,
        generation=1,
        profile=spec,
        plan=replace(samples.plan(), lanes=plans),
        overrides=overrides or Overrides(),
        created_at=EPOCH,
        changed_at=EPOCH,
    )


def one_lane(on_demand: int = 2, spot: int = 0, *, bounds: tuple[int, int] = (1, 8), **changes: Any) -> Desired:
    """Return a fleet with the one lane `short`."""
    spec = lane_spec(replicas=ReplicaBounds(min=bounds[0], max=bounds[1]))
    return desired(spec, counts={"short": (on_demand, spot)}, **changes)


def observed(replica_id: str, state: ReplicaState = ReplicaState.READY, **changes: Any) -> ObservedReplica:
    """Return a replica as a healthy fleet shows it in this state; fields of its record go by `record_` names."""
    of_record = {key.removeprefix("record_"): value for key, value in changes.items() if key.startswith("record_")}
    of_view = {key: value for key, value in changes.items() if not key.startswith("record_")}
    base: dict[str, Any] = {"state": state}
    if state is not ReplicaState.PENDING:
        base |= {"node_id": f"node-{replica_id}", "host": "127.0.0.1", "port": 20001}
    if state in (ReplicaState.READY, ReplicaState.DRAINING):
        base |= {"ready_at": EPOCH}
    if state is ReplicaState.DRAINING:
        base |= {"drain_deadline": at(100)}
    record = samples.replica(replica_id, **(base | of_record))
    defaults: dict[str, Any] = {
        "node": None if state is ReplicaState.PENDING else NodeState.RUNNING,
        "creating": state is ReplicaState.PENDING,
        "healthy": True if state in (ReplicaState.WARMING, ReplicaState.READY, ReplicaState.DRAINING) else None,
        "warming": state is ReplicaState.WARMING,
    }
    return ObservedReplica(record=record, **(defaults | of_view))


def node(node_id: str, replica_id: str, state: NodeState = NodeState.RUNNING) -> Node:
    return Node(
        id=node_id,
        token=f"token-of-{node_id}",
        owner="owner-1",
        fleet="demo",
        replica_id=replica_id,
        state=state,
        market=Market.ON_DEMAND,
        host="127.0.0.1",
        port=1,
        created_at=EPOCH,
    )


def quantiles(p99_s: float, count: int = 200) -> Quantiles:
    return Quantiles(count=count, p50_s=p99_s / 4, p95_s=p99_s / 2, p99_s=p99_s, max_s=p99_s)


def traffic(
    name: str = "short",
    *,
    rps: float = 1.0,
    ttft_s: float | None = None,
    wait_s: float | None = None,
    e2e_s: float | None = None,
    samples_count: int = 200,
    queued: int = 0,
    oldest_wait_s: float = 0.0,
    in_flight: int = 0,
    shed: dict[str, int] | None = None,
    shed_in: dict[float, dict[str, int]] | None = None,
    bad: int = 0,
    late: dict[LatencyTarget, float] | None = None,
) -> LaneSnapshot:
    """Return a lane's figures, the same in every window, but for what was refused `shed_in` some; `late` targets are missed by every sample, at these seconds."""
    windows = tuple(
        LaneWindow(
            seconds=seconds,
            offered=round(rps * seconds),
            good=samples_count - bad,
            breached={"ttft": bad} if bad else {},
            shed=shed or (shed_in or {}).get(seconds, {}),
            finished=samples_count,
            ttft=quantiles(ttft_s, samples_count) if ttft_s is not None else Quantiles(),
            e2e=quantiles(e2e_s, samples_count) if e2e_s is not None else Quantiles(),
            queue_wait=quantiles(wait_s, samples_count) if wait_s is not None else Quantiles(),
            targets=tuple(
                TargetCount(target=target, samples=samples_count, over=samples_count, measured_s=measured_s)
                for target, measured_s in (late or {}).items()
            ),
        )
        for seconds in (10.0, 60.0, 300.0, 3600.0)
    )
    return LaneSnapshot(
        name=name,
        in_flight=in_flight,
        queued=queued,
        oldest_wait_s=oldest_wait_s,
        windows=windows,
    )


def snapshot(*lanes: LaneSnapshot, now_s: float = 3600.0) -> GatewaySnapshot:
    return GatewaySnapshot(
        fleet="demo",
        at=at(now_s),
        started_at=at(now_s - 3600),
        table_version=1,
        pid=4242,
        lanes=lanes,
        replicas=(),
    )


def lane_budget(lane: LaneSnapshot, now_s: float = 3600.0, *, objective: float = 0.995) -> LaneBudget:
    """Return the reading of a ledger that holds what the lane's windows show; what they do not reach is empty."""
    windows = tuple(
        RequestCount(window_s=seconds, good=found.good, bad=found.missed, allowed=found.judged * (1.0 - objective))
        for seconds in BURN_WINDOWS_S
        for found in (lane.window(seconds),)
    )
    budget = ErrorBudget(window_s=7 * 86400.0, since=at(now_s - 3600), good=0, bad=0, left=None)
    return LaneBudget(objective=objective, budget=budget, windows=windows, counted_s=3600.0)


def observation(
    *replicas: ObservedReplica, gateway: GatewaySnapshot | None = None, now_s: float = 3600.0, **changes: Any
) -> Observation:
    """Return what a controller with a living gateway sees."""
    seen = gateway if gateway is not None else snapshot(traffic("short"), traffic("long"), now_s=now_s)
    base = Observation(
        at=at(now_s),
        listing_ok=True,
        replicas=replicas,
        gateway=seen,
        gateway_validity=Validity.OK,
        gateway_alive=True,
        budgets={lane.name: lane_budget(lane, now_s) for lane in seen.lanes},
    )
    return replace(base, **changes)


def decide(fleet: Desired, seen: Observation, memory: Memory | None = None, *, now_s: float | None = None) -> Decision:
    return reconcile(fleet, seen, memory or Memory(), seen.at if now_s is None else at(now_s))


def reason_of(decision: Decision, lane: str) -> str:
    return join_messages(decision.reasons[Subject.lane(lane)])


def of_kind(decision: Decision, kind: type[A]) -> list[A]:
    return [action for action in decision.actions if isinstance(action, kind)]


def after(seen: Observation, decision: Decision, fleet: Desired) -> Observation:
    """Return the world as it should be once the decision is done and before anything else has happened."""
    now = seen.at
    replicas = {r.record.id: r for r in seen.replicas}
    numbers = iter(range(10_000, 20_000))
    for action in decision.actions:
        if action.shadow:
            continue
        if isinstance(action, LaunchReplica):
            new = _launched(action, fleet, f"r{next(numbers)}", now)
            replicas[new.record.id] = new
        elif isinstance(action, StartGateway):
            seen = replace(seen, gateway_alive=True)
        elif isinstance(action, StopGateway):
            seen = replace(seen, gateway_alive=False, gateway=None)
        elif isinstance(action, StopOrphanedNode):
            kept = tuple(
                n if n.id != action.node_id else replace(n, state=NodeState.STOPPING) for n in seen.orphaned_nodes
            )
            seen = replace(seen, orphaned_nodes=kept)
        elif isinstance(action, OneReplicaAction):
            replicas[action.replica_id] = _moved(replicas[action.replica_id], action, now)
    return replace(seen, replicas=tuple(replicas.values()))


def _launched(action: LaunchReplica, fleet: Desired, replica_id: str, now: datetime) -> ObservedReplica:
    plan = fleet.plan.lane(action.lane)
    sold = plan.spot_offering if action.market is Market.SPOT and plan.spot_offering else plan.offering
    return observed(
        replica_id,
        ReplicaState.PENDING,
        record_lane=action.lane,
        record_market=action.market,
        record_price_usd_per_hour=sold.price_usd_per_hour,
        record_created_at=now,
        record_changed_at=now,
    )


def _moved(replica: ObservedReplica, action: ReplicaAction, now: datetime) -> ObservedReplica:
    replica = msgspec.structs.replace(replica, record=transition(replica.record, action, now=now))
    match action:
        case WarmReplica():
            return msgspec.structs.replace(replica, warming=True)
        case AdmitReplica():
            # The controller counts a replica's failures from its admission.
            return msgspec.structs.replace(replica, consecutive_failures=0)
        case StopReplica():
            return msgspec.structs.replace(replica, node=NodeState.STOPPING, absent_readings=0)
        case MarkBooting():
            return msgspec.structs.replace(replica, healthy=None, warmed=False, consecutive_failures=0)
        case RestartReplica():
            return msgspec.structs.replace(
                replica, healthy=None, warmed=False, warming=False, warm_failures=0, restarting=True
            )
        case DrainReplica() | UndrainReplica() | AssignReplica() | MarkGone():
            return replica

"""Puts together what the faces show: live from a tick of the controller, or stored when no controller answers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from fleetctl.core.dispersion import compared_burst
from fleetctl.core.drains import with_drain
from fleetctl.core.engine_load import engine_load
from fleetctl.core.gateway_statuses import gateway_statuses
from fleetctl.core.lane_view import alert_signals, current_traffic
from fleetctl.core.overload import effective_step
from fleetctl.core.plan.launch_identity import is_outdated
from fleetctl.core.reconcile.final_fault import is_final
from fleetctl.core.rollout.in_force import in_force
from fleetctl.core.rollout.progress import rollout_status
from fleetctl.core.slo.alerts import AlertSignals, shown_alerts
from fleetctl.core.slo.burn import FAST_BURN, burn_names
from fleetctl.core.slo.judge import judge_live
from fleetctl.model.alert import Alert, AlertState
from fleetctl.model.budget import LaneBudget
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import Decision, LaneMemory, Memory
from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.model.observation import EngineSignals, Observation, StoreCondition
from fleetctl.model.profile import Mode
from fleetctl.model.reason import ReasonCode, join_messages
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.slo import Validity
from fleetctl.model.status import FleetStatus, LaneStatus, ReplicaStatus
from fleetctl.model.subject import FLEET, Subject

if TYPE_CHECKING:
    from fleetctl.model.gateway import GatewaySnapshot, LaneSnapshot
    from fleetctl.model.journal import JournalEntry
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import LaneSpec
    from fleetctl.model.traffic import ArrivalBurst

DECISIONS_SHOWN = 50
_COST_WINDOW_S = 300.0
_SILENT = ReasonCode.SIGNALS_UNFIT.because("the controller does not answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetKnowledge:
    """Everything a status is built from, at one instant. Without a controller there is no observation and no decision."""

    at: datetime
    desired: Desired
    records: tuple[Replica, ...]
    memory: Memory
    observation: Observation | None = None
    decision: Decision | None = None
    controller_pid: int = 0  # 0: none answers
    controller_place: str = ""  # what it is called where its host keeps it
    silent_controller_pid: int = 0  # of one that runs and does not answer
    controller_seen_at: datetime | None = None  # when one that does not answer was last at work
    controller_host: str = ""  # of one that another machine runs
    gateway_pid: int = 0  # by its lock, where the gateway was not asked itself; 0: none lives here
    gateway_answers: bool = False  # as its host sees it, where the gateway was not asked itself and is not here
    shared_left: int = 0  # shared resources that are prepared, or may be
    budgets: dict[str, LaneBudget] = field(default_factory=dict)  # by lane
    controller_trouble: str = ""  # what keeps one from answering, as its host knows
    controller_stall: str = ""  # by its heartbeat, where it does not answer itself
    gateway_stall: str = ""
    lost_store: StoreCondition | None = None  # found since: nothing was observed after it
    trouble: str = ""  # what went wrong in the last tick, if anything
    failing_since: datetime | None = None  # several ticks in a row have failed, the first one then

    @property
    def store_condition(self) -> StoreCondition | None:
        """What is wrong with the state, as the last tick found it."""
        return self.lost_store or (self.observation.store_condition if self.observation else None)

    @property
    def gateway(self) -> GatewaySnapshot | None:
        """The gateway's own figures, where it answered."""
        return self.observation.gateway if self.observation else None


def fleet_status(known: FleetKnowledge, decisions: tuple[JournalEntry, ...]) -> FleetStatus:
    """Return the fleet as everybody sees it; what only its processes know is absent or STALE without them."""
    desired, gateway = known.desired, known.gateway
    profile = desired.profile
    now = replace(known, desired=in_force(desired, known.memory.rollout))
    head_usd = desired.plan.head_usd_per_hour
    cost = head_usd + sum(record.price_usd_per_hour for record in known.records if record.state.is_live)
    reasons = known.decision.reasons if known.decision else {}
    return FleetStatus(
        fleet=desired.fleet,
        at=known.at,
        phase=desired.phase,
        mode=profile.control.mode,
        model=", ".join(model.name for model in profile.models),
        provider=profile.provider,
        generation=desired.generation,
        gateway_url=profile.gateway.url,
        gateway_alive=gateway is not None if known.observation else known.gateway_pid != 0 or known.gateway_answers,
        controller_alive=known.controller_pid != 0,
        controller_pid=known.controller_pid or known.silent_controller_pid,
        controller_place=known.controller_place,
        controller_seen_at=known.controller_seen_at,
        controller_host=known.controller_host,
        gateway_pid=gateway.pid if gateway else known.gateway_pid,
        gateway_generation=gateway.table_generation if gateway else 0,
        cost_usd_per_hour=cost,
        max_cost_usd_per_hour=profile.capacity.max_cost_usd_per_hour,
        max_nodes=profile.capacity.max_nodes,
        cost_usd_per_1m_tokens=_cost_per_1m_tokens(cost, gateway, known.at) if gateway else None,
        lanes=tuple(_lane(now, spec) for spec in now.desired.profile.lanes),
        replicas=_replicas(known),
        decisions=decisions,
        shared_left=known.shared_left,
        controller_trouble=known.controller_trouble,
        controller_stall=known.controller_stall,
        gateway_stall=known.gateway_stall or (known.observation.gateway_stall if known.observation else ""),
        gateway_loop=gateway.loop if gateway else None,
        gateways=gateway_statuses(known.observation),
        certificate=gateway.certificate if gateway else None,
        workflows=gateway.workflows if gateway else None,
        store_condition=known.store_condition,
        controller_failing_since=known.failing_since,
        overrides=desired.overrides,
        rollout=rollout_status(desired, known.memory.rollout, known.records),
        revision=known.memory.rollout.revision if known.memory.rollout is not None else None,
        is_revision_complete=known.memory.rollout is None or known.memory.rollout.is_over,
        reason=known.trouble or join_messages(reasons.get(FLEET, ())),
        plan_risks=now.desired.plan.risks,
    )


def wanted_replicas(desired: Desired, spec: LaneSpec, memory: LaneMemory) -> int:
    """Return what the lane should have: by an operator, else by the controller where it may act, else by the plan."""
    if desired.phase is not DesiredPhase.UP:
        return 0
    override = desired.overrides.replicas.get(spec.name)
    planned = desired.plan.lane(spec.name).replicas
    if override is None and memory.wanted and desired.overrides.freeze_of(spec.name):
        planned = memory.wanted if memory.planned == -1 else planned
    if override is None and desired.profile.control.mode is Mode.ACTIVE and memory.planned == planned:
        return memory.wanted
    return max(spec.replicas.min, min(spec.replicas.max, planned if override is None else override))


def _cost_per_1m_tokens(cost_usd_per_hour: float, gateway: GatewaySnapshot, at: datetime) -> float | None:
    windows = [lane.window(_COST_WINDOW_S) for lane in gateway.lanes]
    tokens = sum(window.prompt_tokens + window.output_tokens for window in windows)
    seconds = min(_COST_WINDOW_S, max(1.0, gateway.age_s(at)))
    return cost_usd_per_hour * seconds / 3600.0 / tokens * 1e6 if tokens else None


def _lane(known: FleetKnowledge, spec: LaneSpec) -> LaneStatus:
    live = [r for r in known.records if r.lane == spec.name and r.state.is_live]
    memory = known.memory.lane(spec.name)
    traffic = _traffic(known.gateway, spec.name)
    objective = known.desired.profile.objective
    budget, alerts = known.budgets.get(spec.name), lane_alerts(known, spec, memory)
    pressure = known.decision.inputs.get(spec.name, {}).get("pressure") if known.decision else None
    return LaneStatus(
        name=spec.name,
        model=spec.model or known.desired.profile.model.name,
        slo=spec.slo,
        wanted=wanted_replicas(known.desired, spec, memory),
        ready=sum(r.state is ReplicaState.READY for r in live),
        spot=sum(r.market is Market.SPOT for r in live),
        on_demand=sum(r.market is Market.ON_DEMAND for r in live),
        live=len(live),
        step=effective_step(known.desired, spec.name, memory),
        burn=burn_names(budget) if budget else {},
        burn_alert=any(each.name is FAST_BURN.name and each.state is AlertState.FIRING for each in alerts),
        alerts=alerts,
        traffic=traffic,
        validity=_validity(known, traffic),
        reasons=known.decision.reasons.get(Subject.lane(spec.name), ()) if known.decision else (_SILENT,),
        pending=sum(
            r.state.counts_as_capacity
            and r.state is not ReplicaState.READY
            and (not r.is_recovering or r.is_restarting)
            for r in live
        ),
        lost_since=memory.lost_since if memory.had_ready else None,
        pressure=pressure if isinstance(pressure, float) else None,
        verdict=judge_live(
            current_traffic(known.observation, spec.name) if known.observation else None,
            objective=objective.fraction,
            before=memory.breach,
            now=known.at,
        ),
        engine_fault=memory.engine_fault,
        failed_starts=memory.failures,
        cannot_start=is_final(memory, generation=known.desired.generation),
        budget=budget.budget if budget else None,
        arrivals=_arrivals(traffic, known.desired.plan.lane(spec.name)),
        image=known.desired.plan.lane(spec.name).launch.image,
        machine_image=known.desired.plan.lane(spec.name).launch.machine_image,
    )


def _arrivals(traffic: LaneSnapshot | None, plan: LanePlan) -> ArrivalBurst | None:
    """Return how bursty a lane's arrivals were beside what its plan stands on."""
    found = traffic.arrivals if traffic is not None else None
    return compared_burst(found.measured, plan.arrivals, seconds=found.seconds) if found is not None else None


def _validity(known: FleetKnowledge, traffic: LaneSnapshot | None) -> Validity:
    if known.observation is None:
        return Validity.STALE
    return known.observation.gateway_validity if traffic else Validity.NONE


def _traffic(gateway: GatewaySnapshot | None, name: str) -> LaneSnapshot | None:
    if gateway is None:
        return None
    return next((lane for lane in gateway.lanes if lane.name == name), None)


def lane_alerts(known: FleetKnowledge, spec: LaneSpec, memory: LaneMemory) -> tuple[Alert, ...]:
    """Return the lane's alerts as last decided, with the figures of now; without a controller only those that fired."""
    if known.observation is not None and not memory.alerts:
        return ()
    return shown_alerts(memory.alerts, lane_alert_signals(known, spec), is_live=known.observation is not None)


def lane_alert_signals(known: FleetKnowledge, spec: LaneSpec) -> AlertSignals:
    """Return what the lane's alerts go by now; without a controller its budget alone."""
    seen, budget = known.observation, known.budgets.get(spec.name)
    if seen is None:
        return AlertSignals(budget=budget)
    engines = engine_load(replica for replica in seen.replicas if replica.record.lane == spec.name)
    traffic = current_traffic(seen, spec.name)
    return alert_signals(spec, budget, queued=traffic.queued if traffic else None, engines=engines)


def _replicas(known: FleetKnowledge) -> tuple[ReplicaStatus, ...]:
    seen = {r.record.id: r for r in known.observation.replicas} if known.observation else {}
    unseen = EngineSignals(validity=Validity.NONE if known.observation else Validity.STALE)
    return tuple(
        ReplicaStatus(
            record=with_drain(record, known.desired.overrides),
            is_outdated=is_outdated(record, known.desired),
            engine=seen[record.id].engine if record.id in seen else unseen,
            in_flight=seen[record.id].in_flight if record.id in seen else 0,
            pending_reason=seen[record.id].pending_reason if record.id in seen else "",
            boot=seen[record.id].boot if record.id in seen else None,
            boot_steps=(seen[record.id].boot_steps if record.id in seen else ()) or record.boot_steps,
            boot_concern=seen[record.id].boot_concern if record.id in seen else "",
        )
        for record in known.records
    )

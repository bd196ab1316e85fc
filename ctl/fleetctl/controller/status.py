"""Puts together what the faces show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.overload import effective_step
from fleetctl.core.slo.burn import window_burn
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import Decision, JournalEntry, LaneMemory
from fleetctl.model.desired import Desired, Phase
from fleetctl.model.observation import EngineSignals, Observation
from fleetctl.model.profile import Mode
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.slo import Validity
from fleetctl.model.status import FleetStatus, LaneStatus, ReplicaStatus

if TYPE_CHECKING:
    from fleetctl.model.gateway import GatewaySnapshot, LaneSnapshot
    from fleetctl.model.profile import GatewaySpec, LaneSpec

DECISIONS_SHOWN = 50
_COST_WINDOW_S = 300.0
_BURN_WINDOWS = {"5m": 300.0, "1h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class TickResult:
    """What one tick knew and decided."""

    desired: Desired
    records: tuple[Replica, ...]
    observation: Observation
    decision: Decision
    trouble: str = ""  # what went wrong in it, if anything


def fleet_status(tick: TickResult, decisions: tuple[JournalEntry, ...], *, pid: int) -> FleetStatus:
    """Return the moment as everybody sees it."""
    desired, seen = tick.desired, tick.observation
    profile = desired.profile
    cost = sum(record.price_usd_per_hour for record in tick.records if record.state.is_live)
    return FleetStatus(
        fleet=desired.fleet,
        at=seen.at,
        phase=desired.phase,
        mode=profile.control.mode,
        model=profile.model.name,
        provider=profile.provider,
        generation=desired.generation,
        gateway_url=_url(profile.gateway),
        gateway_alive=seen.gateway is not None,
        controller_alive=True,
        controller_pid=pid,
        gateway_pid=seen.gateway.pid if seen.gateway else 0,
        cost_usd_per_hour=cost,
        max_cost_usd_per_hour=profile.capacity.max_cost_usd_per_hour,
        cost_usd_per_1m_tokens=_cost_per_1m_tokens(cost, seen.gateway, tick),
        lanes=tuple(_lane(tick, spec) for spec in profile.lanes),
        replicas=_replicas(tick),
        decisions=decisions,
        reason=tick.trouble or tick.decision.reasons.get("fleet", ""),
    )


def _url(spec: GatewaySpec) -> str:
    host = f"[{spec.host}]" if ":" in spec.host else spec.host
    return f"http://{host}:{spec.port}"


def _cost_per_1m_tokens(cost_usd_per_hour: float, gateway: GatewaySnapshot | None, tick: TickResult) -> float | None:
    if gateway is None:
        return None
    windows = [lane.window(_COST_WINDOW_S) for lane in gateway.lanes]
    tokens = sum(window.prompt_tokens + window.output_tokens for window in windows)
    uptime_s = (tick.observation.at - gateway.started_at).total_seconds()
    seconds = min(_COST_WINDOW_S, max(1.0, uptime_s))
    return cost_usd_per_hour * seconds / 3600.0 / tokens * 1e6 if tokens else None


def _lane(tick: TickResult, spec: LaneSpec) -> LaneStatus:
    desired, decision = tick.desired, tick.decision
    live = [r for r in tick.records if r.lane == spec.name and r.state.is_live]
    memory = decision.memory.lanes.get(spec.name, LaneMemory())
    traffic = _traffic(tick.observation.gateway, spec.name)
    pressure = decision.inputs.get(spec.name, {}).get("pressure")
    return LaneStatus(
        name=spec.name,
        slo=spec.slo,
        wanted=_wanted(desired, spec, memory),
        ready=sum(r.state is ReplicaState.READY for r in live),
        spot=sum(r.market is Market.SPOT for r in live),
        on_demand=sum(r.market is Market.ON_DEMAND for r in live),
        live=len(live),
        step=effective_step(desired, spec.name, memory),
        burn=_burn(traffic, desired.profile.objective.fraction),
        traffic=traffic,
        validity=tick.observation.gateway_validity if traffic else Validity.NONE,
        reason=decision.reasons.get(spec.name, ""),
        pending=sum(r.state.counts_as_capacity and r.state is not ReplicaState.READY for r in live),
        pressure=pressure if isinstance(pressure, float) else None,
    )


def _wanted(desired: Desired, spec: LaneSpec, memory: LaneMemory) -> int:
    """Return what the lane should have; in shadow mode that is what an operator requested, not what the controller decided."""
    if desired.phase is not Phase.UP:
        return 0
    by_hand = desired.overrides.replicas.get(spec.name)
    if desired.profile.control.mode is Mode.ACTIVE or by_hand is not None:
        return memory.wanted
    return max(spec.replicas.min, min(spec.replicas.max, desired.plan.lane(spec.name).replicas))


def _traffic(gateway: GatewaySnapshot | None, name: str) -> LaneSnapshot | None:
    if gateway is None:
        return None
    return next((lane for lane in gateway.lanes if lane.name == name), None)


def _burn(traffic: LaneSnapshot | None, objective: float) -> dict[str, float]:
    if traffic is None or not 0 < objective < 1:
        return {}
    rates = {name: window_burn(traffic.window(seconds), objective) for name, seconds in _BURN_WINDOWS.items()}
    return {name: rate for name, rate in rates.items() if rate is not None}


def _replicas(tick: TickResult) -> tuple[ReplicaStatus, ...]:
    seen = {r.record.id: r for r in tick.observation.replicas}
    return tuple(
        ReplicaStatus(
            record=record,
            engine=seen[record.id].engine if record.id in seen else EngineSignals(),
            in_flight=seen[record.id].in_flight if record.id in seen else 0,
        )
        for record in tick.records
    )

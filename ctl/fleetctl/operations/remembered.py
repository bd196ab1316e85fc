"""A fleet's status as far as the store knows it, for when its controller does not answer: all of it STALE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.catalogue import Market
from fleetctl.model.desired import Phase
from fleetctl.model.observation import EngineSignals
from fleetctl.model.overload import LadderStep
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.slo import Validity
from fleetctl.model.status import FleetStatus, LaneStatus, ReplicaStatus
from fleetctl.paths import FleetPaths
from fleetctl.state.locks import FileLock

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.profile import GatewaySpec, LaneSpec
    from fleetctl.ports.store import StateStore

DECISIONS_SHOWN = 50


def remembered_status(store: StateStore, desired: Desired) -> FleetStatus:
    """Return the fleet's status from its records alone; figures only its processes know are absent."""
    replicas = store.replicas(desired.fleet)
    profile = desired.profile
    gateway = FileLock(FleetPaths(fleet=desired.fleet).gateway_lock).holder()
    return FleetStatus(
        fleet=desired.fleet,
        at=SYSTEM_CLOCK.now(),
        phase=desired.phase,
        mode=profile.control.mode,
        model=profile.model.name,
        provider=profile.provider,
        generation=desired.generation,
        gateway_url=gateway_url(profile.gateway),
        gateway_alive=gateway is not None,
        controller_alive=False,
        controller_pid=0,
        gateway_pid=gateway.pid if gateway else 0,
        cost_usd_per_hour=sum(r.price_usd_per_hour for r in replicas if r.state.is_live),
        max_cost_usd_per_hour=profile.capacity.max_cost_usd_per_hour,
        cost_usd_per_1m_tokens=None,
        lanes=tuple(_lane(store, desired, spec, replicas) for spec in profile.lanes),
        replicas=tuple(
            ReplicaStatus(record=record, engine=EngineSignals(validity=Validity.STALE), in_flight=0)
            for record in replicas
        ),
        decisions=store.journal(desired.fleet, limit=DECISIONS_SHOWN),
    )


def gateway_url(spec: GatewaySpec) -> str:
    """Return the address clients give as their base URL, without its /v1."""
    host = f"[{spec.host}]" if ":" in spec.host else spec.host
    return f"http://{host}:{spec.port}"


def _lane(store: StateStore, desired: Desired, spec: LaneSpec, replicas: tuple[Replica, ...]) -> LaneStatus:
    memory = store.memory(desired.fleet).lanes.get(spec.name)
    live = [r for r in replicas if r.lane == spec.name and r.state.is_live]
    planned = desired.plan.lane(spec.name).replicas
    decided = memory.wanted if memory and memory.planned == planned else planned
    wanted = desired.overrides.replicas.get(spec.name, decided)
    step = desired.overrides.step.get(spec.name, memory.step if memory else LadderStep.NORMAL)
    return LaneStatus(
        name=spec.name,
        slo=spec.slo,
        wanted=wanted if desired.phase is Phase.UP else 0,
        ready=sum(r.state is ReplicaState.READY for r in live),
        spot=sum(r.market is Market.SPOT for r in live),
        on_demand=sum(r.market is Market.ON_DEMAND for r in live),
        live=len(live),
        step=step,
        validity=Validity.STALE,
        reason="the controller does not answer",
        pending=sum(r.state.counts_as_capacity and r.state is not ReplicaState.READY for r in live),
    )

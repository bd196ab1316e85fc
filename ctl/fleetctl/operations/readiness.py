"""Whether what an `up` wrote down is in force, and what is still missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.conditions import serves_nobody
from fleetctl.errors import EngineStartError
from fleetctl.model.replica import ReplicaState
from fleetctl.units import format_count

if TYPE_CHECKING:
    from fleetctl.model.status import FleetStatus
    from fleetctl.operations.site import Site


def is_ready(seen: FleetStatus) -> bool:
    """Say whether every lane has the replicas it wants and the gateway serves them."""
    alive = seen.controller_alive and seen.gateway_alive
    return alive and all(lane.ready >= lane.wanted and not serves_nobody(lane) for lane in seen.lanes)


def missing(site: Site, seen: FleetStatus, *, generation: int) -> str:
    """Return what keeps this generation of a fleet's record from being in force; empty: it is, and serves.

    The port is asked last, and by a connection: an address is only claimed where somebody answers.
    """
    if not seen.controller_alive:
        return "the controller does not answer"
    if seen.generation < generation:
        return f"the controller works by generation {seen.generation}, this is {generation}"
    lanes = [f"{lane.name} {lane.ready} of {lane.wanted}" for lane in seen.lanes if lane.ready < lane.wanted]
    if lanes:
        return f"replicas ready: {', '.join(lanes)}"
    return _missing_at_gateway(seen, generation=generation) or _closed_port(site, seen.fleet)


def _missing_at_gateway(seen: FleetStatus, *, generation: int) -> str:
    if not seen.gateway_alive:
        return "the gateway does not answer"
    failing = [lane.name for lane in seen.lanes if serves_nobody(lane)]
    if failing:
        return f"none of their replicas answers the gateway: {', '.join(failing)}"
    if seen.gateway_generation < generation:
        return f"the gateway works by the rules of generation {seen.gateway_generation}, this is {generation}"
    return ""


def refuse_final(seen: FleetStatus, *, generation: int) -> None:
    """Raise EngineStartError where an engine cannot start by this generation of the fleet's record, naming the cause."""
    if not seen.controller_alive or seen.generation < generation:
        return
    faults = {lane.name: lane.engine_fault.line for lane in seen.lanes if lane.cannot_start and lane.engine_fault}
    if faults:
        raise EngineStartError(
            "\n".join(f"lane {name}: the engine cannot start: {line}" for name, line in faults.items()),
            hint=f"mend it and bring it up again: fleetctl up; all it wrote: fleetctl logs {_last_failed(seen, next(iter(faults)))} --fleet {seen.fleet}",
        )


def failed_starts(seen: FleetStatus, *, generation: int) -> list[str]:
    """Return a line for each lane whose starts fail by this generation of the fleet's record, and are tried again."""
    if not seen.controller_alive or seen.generation < generation:
        return []
    return [
        f"lane {lane.name}: {format_count(lane.failed_starts, 'start')} in a row failed: {lane.engine_fault.line}"
        for lane in seen.lanes
        if lane.engine_fault and lane.failed_starts and not lane.cannot_start
    ]


def _last_failed(seen: FleetStatus, lane: str) -> str:
    """Return the newest replica of a lane that has failed."""
    failed = [r.record for r in seen.replicas if r.record.lane == lane and r.record.state is ReplicaState.FAILED]
    return max(failed, key=lambda record: record.created_at).id if failed else "controller"


def _closed_port(site: Site, fleet: str) -> str:
    desired = site.store.fleet(fleet)
    if desired is None:
        return "the fleet was taken down meanwhile"
    gateway = desired.profile.gateway
    if site.host.accepts(gateway.host, gateway.port):
        return ""
    return f"nobody takes connections at {gateway.url}"

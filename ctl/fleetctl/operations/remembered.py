"""A fleet's status as far as the store knows it, for when its controller does not answer: all of it STALE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.status import DECISIONS_SHOWN, FleetKnowledge, fleet_status
from fleetctl.paths import FleetPaths
from fleetctl.state.locks import FileLock

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.profile import GatewaySpec
    from fleetctl.model.status import FleetStatus
    from fleetctl.ports.store import StateStore


def remembered_status(store: StateStore, desired: Desired) -> FleetStatus:
    """Return the fleet's status from its records alone; figures only its processes know are absent."""
    gateway = FileLock(FleetPaths(fleet=desired.fleet).gateway_lock).holder()
    known = FleetKnowledge(
        at=SYSTEM_CLOCK.now(),
        desired=desired,
        records=store.replicas(desired.fleet),
        memory=store.memory(desired.fleet),
        gateway_pid=gateway.pid if gateway else 0,
    )
    return fleet_status(known, store.journal(desired.fleet, limit=DECISIONS_SHOWN))


def gateway_url(spec: GatewaySpec) -> str:
    """Return the address clients give as their base URL, without its /v1."""
    return spec.url

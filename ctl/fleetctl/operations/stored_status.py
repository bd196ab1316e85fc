"""A fleet's status as far as the store and its host know it, for when its controller does not answer: all of it STALE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.slo.budget import read_budgets
from fleetctl.core.status import DECISIONS_SHOWN, FleetKnowledge, fleet_status
from fleetctl.errors import FleetctlError
from fleetctl.operations.commands import kept_elsewhere, why_silent
from fleetctl.operations.gateway_reach import gateway_reach

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.status import FleetStatus
    from fleetctl.operations.site import Site


def stored_status(site: Site, desired: Desired) -> FleetStatus:
    """Return the fleet's status from its records alone; figures only its processes know are absent."""
    processes, lease = site.host.processes(desired.fleet), site.store.lease(desired.fleet)
    controller_stall, gateway_stall = site.host.stalls(desired.fleet)
    now, elsewhere = site.clock.now(), kept_elsewhere(site, desired.fleet)
    known = FleetKnowledge(
        at=now,
        desired=desired,
        records=site.store.replicas(desired.fleet),
        memory=site.store.memory(desired.fleet),
        budgets=read_budgets(site.store.ledgers(desired.fleet), desired.profile.objective, now),
        shared_left=len(site.store.shared_intents(desired.fleet)),
        gateway_pid=processes.gateway_pid or 0,
        gateway_answers=_gateway_answers(site, desired.fleet),
        silent_controller_pid=processes.controller_pid or 0,
        controller_trouble=why_silent(site, desired.fleet),
        controller_stall=str(controller_stall or ""),
        gateway_stall=str(gateway_stall or ""),
        controller_seen_at=lease.last_seen_at if lease is not None else None,
        controller_host=elsewhere.holder.host if elsewhere is not None else "",
    )
    return fleet_status(known, site.store.journal(desired.fleet, limit=DECISIONS_SHOWN))


def _gateway_answers(site: Site, fleet: str) -> bool:
    """Return whether a gateway that is not on this machine takes requests, as its host sees: it lives without a controller."""
    reach = gateway_reach(site, fleet)
    try:
        return reach is not None and reach.gateway_answers()
    except FleetctlError:
        return False  # what keeps its host from seeing it keeps the controller from answering too, and is said of that

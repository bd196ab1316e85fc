"""Keeps a fleet's processes from the foreground, for containers and process supervisors: they end with us, the replicas do not."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError, StateError, UnavailableError
from fleetctl.model.desired import DesiredPhase
from fleetctl.operations.commands import ensure_controller, kept_elsewhere
from fleetctl.ports.host import OrphanedProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.operations.site import Site

_log = logging.getLogger("fleetctl.stay")
LOOK_S = 1.0
# Each of a fleet's two processes starts the other if it is missing: one that was just started is ended by the next round.
_ROUNDS = 3


def keep(site: Site, fleet: str, *, waits: Callable[[float], bool]) -> None:
    """Have a controller at work on a fleet that should be there, until `waits(seconds)` returns that we are to go.

    A fleet that was taken down meanwhile is left down; one that another machine keeps is taken over once that has let go.
    """
    was_down, kept_by = False, ""
    while not waits(LOOK_S):
        try:
            desired = site.store.fleet(fleet)
            if desired is not None and _needs_a_start(site, fleet):
                kept_by = _taken_over(site, fleet, kept_by)
        except FleetctlError as exc:
            # What cannot be read or started now is tried again: whoever supervises us sees the log.
            _log.error("%s", exc.message)
            continue
        is_down = desired is None or desired.phase is DesiredPhase.DOWN
        if is_down and not was_down:
            _log.info("%s was taken down; nothing is kept until this is started again", fleet)
        was_down = is_down


def _needs_a_start(site: Site, fleet: str) -> bool:
    """Whether nothing of a fleet lives here that would start the rest; a controller that stands still is no better than none."""
    processes = site.host.processes(fleet)
    if processes.has_gateway:
        return False
    controller, _ = site.host.stalls(fleet)
    return not processes.has_controller or controller is not None


def _taken_over(site: Site, fleet: str, kept_by: str) -> str:
    """Start a fleet's processes unless another machine's keep it; return who does, empty: we. `kept_by` is whom we told of."""
    elsewhere = kept_elsewhere(site, fleet)
    if elsewhere is None:
        _log.warning("nothing of %s is at work here; started again", fleet)
        ensure_controller(site, fleet)
        return ""
    holder = f"process {elsewhere.holder.pid} on {elsewhere.holder.host}"
    if holder != kept_by:
        _log.info("%s is kept by %s; standing by", fleet, holder)
    return holder


def leave(site: Site, fleet: str, *, within_s: float) -> None:
    """End a fleet's controller and gateway, and leave its replicas as they are for the next to find.

    Requests in flight have `within_s` to finish. Raises UnavailableError for a process that cannot be ended.
    """
    for _ in range(_ROUNDS):
        living = site.host.processes(fleet)
        gateways = [("gateway", pid) for pid in (living.gateway_pid, *(pid for _, pid in living.other_gateways))]
        roles = (("controller", living.controller_pid), *gateways)
        found = tuple(OrphanedProcess(pid=pid, fleet=fleet, role=role) for role, pid in roles if pid)
        if not found:
            return
        if left := site.host.end_orphaned(found, within_s=within_s):
            pids = ", ".join(str(each.pid) for each in left)
            raise UnavailableError(f"of fleet {fleet} there live on: {pids}", hint=f"end them: kill -9 {pids}")
    if site.host.processes(fleet).is_any:
        raise StateError(f"something starts {fleet} again and again", hint="end what does, and run this again")

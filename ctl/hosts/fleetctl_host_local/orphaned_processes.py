"""Finds processes of this user's fleets that belong to no fleet any more."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from fleetctl.paths import state_dir
from fleetctl.ports.host import OrphanedProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psutil

_OURS = re.compile(r"fleetctl\.(controller|gateway)$")


def fleet_processes(owner: str) -> Iterator[OrphanedProcess]:
    """Yield every living process of this state directory's fleets, orphaned if its fleet is not known."""
    import psutil

    for process in psutil.process_iter(["pid", "status"]):
        if process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        try:
            found = _recognise(process, owner)
        except psutil.Error:
            continue  # it ended, or is another user's
        if found is not None:
            yield found


def _recognise(process: psutil.Process, owner: str) -> OrphanedProcess | None:
    environment = process.environ()
    if environment.get("FLEETCTL_OWNER") == owner:
        role = f"replica {environment.get('FLEETCTL_REPLICA')}"
        return OrphanedProcess(pid=process.pid, fleet=environment.get("FLEETCTL_FLEET", ""), role=role)
    for module, fleet in pairwise(process.cmdline()):
        match = _OURS.search(module)
        if match and _state_of(environment) == str(state_dir()):
            return OrphanedProcess(pid=process.pid, fleet=fleet, role=match[1])
    return None


def _state_of(environment: dict[str, str]) -> str:
    root = environment.get("XDG_STATE_HOME") or f"{environment.get('HOME', '')}/.local/state"
    return f"{root}/fleetctl"

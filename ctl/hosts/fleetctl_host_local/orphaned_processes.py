"""Finds processes of this user's fleets that belong to no fleet any more."""

from __future__ import annotations

import re
import signal
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from fleetctl.paths import state_dir
from fleetctl.ports.host import OrphanedProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psutil

# Controller and gateway at once, as each starts the other; the engines once nobody sends them requests.
_ORDER = (("controller", "gateway"), ("replica",))
_KILLED_S = 5.0
_STATE_TAGS = ("FLEETCTL_STATE_DIR", "FLEETCTL_STATE")  # the latter on processes that an earlier version started
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


def fleet_of_gateway(command_line: Sequence[str]) -> str:
    """Return the fleet whose gateway a command line starts; empty for any other."""
    roles = ((match[1], fleet) for module, fleet in pairwise(command_line) if (match := _OURS.search(module)))
    return next((fleet for role, fleet in roles if role == "gateway"), "")


def end(processes: tuple[OrphanedProcess, ...], *, within_s: float) -> tuple[OrphanedProcess, ...]:
    """End processes, asked first and made to after `within_s`; return those that live on."""
    import psutil

    left: list[OrphanedProcess] = []
    for roles in _ORDER:
        handles = {p: each for each in processes if each.role.startswith(roles) and (p := _handle(each)) is not None}
        for number, patience_s in ((signal.SIGTERM, within_s), (signal.SIGKILL, _KILLED_S)):
            for process in handles:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
            _, alive = psutil.wait_procs(list(handles), timeout=patience_s)
            handles = {process: handles[process] for process in alive}
        left += handles.values()
    return tuple(left)


def _handle(found: OrphanedProcess) -> psutil.Process | None:
    """Return the process itself, if it is still the one that was found: its number may be another's by now."""
    import psutil

    try:
        process = psutil.Process(found.pid)
        same = _recognise(process, found.owner)
    except psutil.Error:
        return None
    return process if same == found else None


def _recognise(process: psutil.Process, owner: str) -> OrphanedProcess | None:
    environment = process.environ()
    tag = environment.get("FLEETCTL_OWNER", "")
    if tag and (tag == owner or str(state_dir()) in (environment.get(name) for name in _STATE_TAGS)):
        role = f"replica {environment.get('FLEETCTL_REPLICA')}"
        return OrphanedProcess(pid=process.pid, fleet=environment.get("FLEETCTL_FLEET", ""), role=role, owner=tag)
    for module, fleet in pairwise(process.cmdline()):
        match = _OURS.search(module)
        if match and _state_of(environment) == str(state_dir()):
            return OrphanedProcess(pid=process.pid, fleet=fleet, role=match[1])
    return None


def _state_of(environment: dict[str, str]) -> str:
    root = environment.get("XDG_STATE_HOME") or f"{environment.get('HOME', '')}/.local/state"
    return f"{root}/fleetctl"

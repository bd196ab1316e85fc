"""Finds processes of this user's fleets that belong to no fleet any more."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError
from fleetctl.operations.access import opened_store
from fleetctl.paths import state_db, state_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psutil

_OURS = re.compile(r"fleetctl\.(controller|gateway)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A process nothing looks after."""

    pid: int
    fleet: str
    what: str  # "gateway of chat", "replica short-1 of chat"


def find() -> tuple[Leftover, ...]:
    """Return controllers, gateways and replicas of this state directory whose fleet is not known to it."""
    if not state_db().exists():
        return ()
    try:
        with opened_store() as store:
            owner, known = store.owner, {desired.fleet for desired in store.fleets()}
    except FleetctlError:
        return ()  # nothing can be told apart; the state check says why
    return tuple(found for found in tagged(owner) if found.fleet not in known)


def tagged(owner: str) -> Iterator[Leftover]:
    """Yield every living process of this state directory's fleets."""
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


def _recognise(process: psutil.Process, owner: str) -> Leftover | None:
    environment = process.environ()
    if environment.get("FLEETCTL_OWNER") == owner:
        fleet = environment.get("FLEETCTL_FLEET", "")
        return Leftover(pid=process.pid, fleet=fleet, what=f"replica {environment.get('FLEETCTL_REPLICA')} of {fleet}")
    command = process.cmdline()
    for module, fleet in pairwise(command):
        match = _OURS.search(module)
        if match and _state_of(environment) == str(state_dir()):
            return Leftover(pid=process.pid, fleet=fleet, what=f"{match[1]} of {fleet}")
    return None


def _state_of(environment: dict[str, str]) -> str:
    root = environment.get("XDG_STATE_HOME") or f"{environment.get('HOME', '')}/.local/state"
    return f"{root}/fleetctl"

"""Finds a fleet's processes whose locks lie in a runtime directory, as up to 0.1.0 they did, and takes over from them.

They know neither the locks nor the leases of today, so beside one of them nobody may begin to write.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import signal
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import LockHeldError
from fleetctl.locks import FileLock
from fleetctl.paths import state_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger("fleetctl.host.local")
_PROC = Path("/proc")
_END_S = 10.0
_POLL_S = 0.05
# Such a gateway finishes its requests within 10 s; one that does not end is stopped, or hangs.
_GATEWAY_END_S = 15.0


def processes_of(fleet: str) -> dict[str, int]:
    """Return the pids of such a "controller" and "gateway", where they live."""
    return dict(_by_open_files(fleet) if _PROC.is_dir() else _by_known_places(fleet))


def take_over(fleet: str) -> None:
    """End such a controller, and have such a gateway finish; raises LockHeldError if the controller does not go.

    The controller leaves everything as it is. The gateway lets go of the port at once and answers what it has begun.
    """
    found = processes_of(fleet)
    if "controller" in found:
        _end(found["controller"], fleet)
    if "gateway" in found:
        _log.warning("taking over from the gateway of an earlier version, process %d", found["gateway"])
        _signal(found["gateway"], signal.SIGTERM)
        deadline = threading.Timer(_GATEWAY_END_S, _kill_gateway, (fleet, found["gateway"]))
        deadline.daemon = True
        deadline.start()


def _end(pid: int, fleet: str) -> None:
    _log.warning("taking over from the controller of an earlier version, process %d", pid)
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal(pid, number)
        deadline_s = SYSTEM_CLOCK.monotonic_s() + _END_S
        while SYSTEM_CLOCK.monotonic_s() < deadline_s:
            if processes_of(fleet).get("controller") != pid:
                return
            SYSTEM_CLOCK.sleep_blocking(_POLL_S)
    raise LockHeldError(
        f"process {pid}, the controller of {fleet} that an earlier version started, does not end", hint=f"kill -9 {pid}"
    )


def _kill_gateway(fleet: str, pid: int) -> None:
    if processes_of(fleet).get("gateway") == pid:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _by_open_files(fleet: str) -> Iterator[tuple[str, int]]:
    """Look at which lock files processes have open: also where the directory has been removed since."""
    place = (
        rf"/fleetctl-(?:\d+-)?{_owner()}/{re.escape(_directory(fleet))}/(controller|gateway)\.lock(?: \(deleted\))?$"
    )
    lock = re.compile(place)
    for process in _PROC.glob("[0-9]*"):
        for match in filter(None, map(lock.search, _open_files(process))):
            if int(process.name) != os.getpid():
                yield match[1], int(process.name)


def _open_files(process: Path) -> Iterator[str]:
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        return  # it ended, or is another user's
    for descriptor in descriptors:
        try:
            yield str(descriptor.readlink())
        except OSError:
            continue  # closed meanwhile


def _by_known_places(fleet: str) -> Iterator[tuple[str, int]]:
    """Look where this environment would have had the locks."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    roots = [Path(tempfile.gettempdir()) / f"fleetctl-{os.getuid()}-{_owner()}"]
    if runtime.startswith("/"):
        roots.append(Path(runtime) / f"fleetctl-{_owner()}")
    for root in roots:
        for role in ("controller", "gateway"):
            holder = FileLock(root / _directory(fleet) / f"{role}.lock").holder()
            if holder is not None:
                yield role, holder.pid


def _owner() -> str:
    return hashlib.sha256(str(state_dir()).encode()).hexdigest()[:8]


def _directory(fleet: str) -> str:
    return fleet if len(fleet) <= 24 else hashlib.sha256(fleet.encode()).hexdigest()[:16]

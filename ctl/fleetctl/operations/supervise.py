"""Keeps a fleet's controller alive: every command that needs one makes sure there is one."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import UnavailableError
from fleetctl.model.desired import Phase
from fleetctl.operations import controller_api
from fleetctl.operations.access import opened_store
from fleetctl.paths import FleetPaths
from fleetctl.state.locks import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The gateway looks once a second, and the controller it starts needs about one second to answer.
_REVIVAL_S = 3.0
_START_S = 20.0
_POLL_S = 0.1
_LOG_LINES_SHOWN = 8


def ensure_controller(fleet: str) -> None:
    """Return once the fleet's controller answers, or has done what was left to do. Raises UnavailableError.

    A living gateway revives its controller itself and hands it the listening sockets, so it is given its chance first:
    a controller started from here would find the port taken until the gateway lets go.
    """
    if _answers(fleet):
        return
    paths = FleetPaths(fleet=fleet)
    paths.make()
    lock, gateway = FileLock(paths.controller_lock), FileLock(paths.gateway_lock)
    if gateway.is_held() and _within(_REVIVAL_S, lambda: _answers(fleet)):
        return
    started = None if lock.is_held() else start_controller(fleet)
    if not _within(_START_S, lambda: _answers(fleet) or (_has_ended(started) and not lock.is_held())):
        raise _silent(fleet, f"did not answer within {_START_S:g} s")
    # One that had little to take down may be done, and the fleet forgotten, before anybody could ask it.
    is_done = started is not None and started.returncode == 0 and not _should_be_up(fleet)
    if not (is_done or _answers(fleet)):
        raise _silent(fleet, f"ended with exit code {started.returncode if started else '?'} while starting")


def start_controller(fleet: str) -> subprocess.Popen[bytes]:
    """Start the fleet's controller in its own session, so that it outlives this command and its terminal."""
    log = controller_log(fleet)
    with log.open("ab") as stream:
        started = subprocess.Popen(  # noqa: S603  # our own module; the fleet's name is one argument, no shell
            [sys.executable, "-m", "fleetctl.controller", fleet],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            cwd="/",  # it must not keep the caller's directory busy
        )
    # A caller that lives long, as the TUI does, must not keep a dead controller as a zombie.
    threading.Thread(target=started.wait, name=f"reap-{started.pid}", daemon=True).start()
    return started


def controller_log(fleet: str) -> Path:
    """Return the file that takes the controller's output."""
    return FleetPaths(fleet=fleet).logs / "controller.log"


def wake(fleet: str) -> bool:
    """Have the controller act at once on what was just written; False if it will only at its next start or tick."""
    try:
        controller_api.wake(fleet)
    except UnavailableError:
        return False
    return True


def is_abandoned(fleet: str) -> bool:
    """Say whether a fleet has something to do and no process that would start doing it."""
    paths = FleetPaths(fleet=fleet)
    if any(FileLock(lock).is_held() for lock in (paths.controller_lock, paths.gateway_lock)):
        return False
    with opened_store() as store:
        desired = store.fleet(fleet)
        if desired is None:
            return False
        live = any(replica.state.is_live for replica in store.replicas(fleet))
        return desired.phase is Phase.UP or live or bool(store.open_intents(fleet))


def has_controller(fleet: str) -> bool:
    """Say whether a controller process holds the fleet, answering or not."""
    return FileLock(FleetPaths(fleet=fleet).controller_lock).is_held()


def _answers(fleet: str) -> bool:
    if not FleetPaths(fleet=fleet).controller_socket.exists():
        return False
    try:
        controller_api.live_status(fleet, deadline_s=_POLL_S * 20)
    except UnavailableError:
        return False
    return True


def _has_ended(started: subprocess.Popen[bytes] | None) -> bool:
    return started is not None and started.poll() is not None


def _should_be_up(fleet: str) -> bool:
    with opened_store() as store:
        desired = store.fleet(fleet)
    return desired is not None and desired.phase is Phase.UP


def _within(seconds: float, is_done: Callable[[], bool]) -> bool:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + seconds
    while not is_done():
        if SYSTEM_CLOCK.monotonic_s() >= deadline_s:
            return False
        SYSTEM_CLOCK.sleep_blocking(_POLL_S)
    return True


def _silent(fleet: str, what: str) -> UnavailableError:
    log = controller_log(fleet)
    said = log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:] if log.exists() else []
    words = "".join(f"\n  | {line}" for line in said)
    return UnavailableError(
        f"the controller of {fleet} {what}" + (f"; its last words:{words}" if words else ""),
        hint=f"the whole log is {log}",
    )

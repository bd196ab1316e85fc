"""Keeps a fleet's controller alive: every command that needs one makes sure there is one."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import UnavailableError
from fleetctl.locks import FileLock
from fleetctl.log_files import open_log_or_discard
from fleetctl.paths import FleetPaths
from fleetctl_host_local import controller_client, recorded_environment
from fleetctl_host_local.heartbeat import current_stall, kill_holder
from fleetctl_host_local.runtimes import controller_command
from fleetctl_host_local.unclaimed import UnclaimedControllers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fleetctl.ports.runtime import Stall

# The gateway looks once a second, and the controller it starts needs about one second to answer.
_REVIVAL_S = 3.0
_START_S = 20.0
# The gateway sees a controller stand still for some seconds before it kills it.
_REPLACED_S = 12.0
_KILLED_S = 2.0
_POLL_S = 0.1
_ANSWER_S = 2.0
_LOG_LINES_SHOWN = 8


def ensure_controller(fleet: str, *, is_wanted: Callable[[], bool]) -> None:
    """Return once the fleet's controller answers, or has done what was left to do. Raises UnavailableError.

    A living gateway revives its controller itself and hands it the listening sockets, so it is given its chance first:
    a controller started from here would find the port taken until the gateway lets go.
    """
    paths = FleetPaths(fleet=fleet)
    lock, gateway = FileLock(paths.controller_lock), FileLock(paths.gateway_lock)
    # One that is known to stand still is not waited for.
    if _stall(lock) is None and _answers(fleet):
        return
    paths.make()
    if _replaces_stalled(lock, gateway) and _within(_REPLACED_S, lambda: _answers(fleet)):
        return
    if gateway.is_held() and not _stall(gateway) and _within(_REVIVAL_S, lambda: _answers(fleet)):
        return
    start = _Start(fleet, lock)
    if not _within(_START_S, start.is_settled):
        raise _unavailable(fleet, f"did not answer within {_START_S:g} s")
    # One that had little to take down may be done, and the fleet forgotten, before anybody could ask it, or ask it twice.
    code = start.exit_code
    if not (start.has_answered or (code == 0 and not is_wanted()) or _answers(fleet)):
        raise _unavailable(fleet, f"ended with exit code {'?' if code is None else code} while starting")


class _Start:
    """A controller's start, and another in place of one that is stopped before it has the lock."""

    def __init__(self, fleet: str, lock: FileLock) -> None:
        self._fleet = fleet
        self._lock = lock
        self._unclaimed = UnclaimedControllers(lock)
        self._started: subprocess.Popen[bytes] | None = None
        self.has_answered = False  # a controller, this one or another's
        self._start_missing()

    def _start_missing(self) -> None:
        if not self._lock.is_held():
            self._started = start_controller(self._fleet)
            self._unclaimed.add(self._started)

    @property
    def exit_code(self) -> int | None:
        """Of the controller started from here; None: none was, or it runs."""
        return self._started.poll() if self._started is not None else None

    def is_settled(self) -> bool:
        """Whether a controller answers, or the one that was started has ended."""
        if _answers(self._fleet):
            self.has_answered = True
            # Another has the lock; whoever is stopped before it will never be needed.
            self._unclaimed.end_stopped(SYSTEM_CLOCK.monotonic_s(), within_s=0.0)
            return True
        if self._unclaimed.end_stopped(SYSTEM_CLOCK.monotonic_s()):
            self._start_missing()
            return False
        return self.exit_code is not None and not self._lock.is_held()


def _replaces_stalled(lock: FileLock, gateway: FileLock) -> bool:
    """Whether the gateway is about to replace a controller that does not progress; with no such gateway, end it here."""
    stall = _stall(lock)
    if stall is None:
        return False
    if gateway.is_held() and not _stall(gateway):
        return True
    # The gateway keeps the port's backlog until the next controller, which sees at once that it is stopped, holds the port.
    kill_holder(lock, stall)
    _within(_KILLED_S, lambda: not lock.is_held())
    return False


def _stall(lock: FileLock) -> Stall | None:
    return current_stall(lock, SYSTEM_CLOCK.monotonic_s())


def start_controller(fleet: str) -> subprocess.Popen[bytes]:
    """Start the fleet's controller in its own session, so that it outlives this command and its terminal."""
    paths = FleetPaths(fleet=fleet)
    with open_log_or_discard(controller_log(fleet)) as log:
        started = subprocess.Popen(  # noqa: S603  # our own module; the fleet's name is one argument, no shell
            controller_command(fleet),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=recorded_environment.of_controller(paths, os.environ),
            cwd="/",  # it must not keep the caller's directory busy
        )
    # A caller that lives long, as the TUI does, must not keep a dead controller as a zombie.
    threading.Thread(target=started.wait, name=f"reap-{started.pid}", daemon=True).start()
    return started


def controller_log(fleet: str) -> Path:
    """Return the file that takes the controller's output."""
    return FleetPaths(fleet=fleet).logs / "controller.log"


def _answers(fleet: str) -> bool:
    if not FleetPaths(fleet=fleet).controller_socket.exists():
        return False
    try:
        controller_client.status(fleet, deadline_s=_ANSWER_S)
    except UnavailableError:
        return False
    return True


def _within(seconds: float, is_done: Callable[[], bool]) -> bool:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + seconds
    while not is_done():
        if SYSTEM_CLOCK.monotonic_s() >= deadline_s:
            return False
        SYSTEM_CLOCK.sleep_blocking(_POLL_S)
    return True


def _unavailable(fleet: str, what: str) -> UnavailableError:
    stall = _stall(FileLock(FleetPaths(fleet=fleet).controller_lock))
    if stall is not None:
        return UnavailableError(
            f"the controller of {fleet}, {stall}", hint=f"end it, and run this again: kill -9 {stall.pid}"
        )
    log = controller_log(fleet)
    tail = log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:] if log.exists() else []
    shown = "".join(f"\n  | {line}" for line in tail)
    return UnavailableError(
        f"the controller of {fleet} {what}" + (f"; the end of its log:{shown}" if shown else ""),
        hint=f"the whole log is {log}",
    )

"""Starts a missing controller, and replaces one that does not progress, while the fleet should be up."""

from __future__ import annotations

import logging
import os
import subprocess
from typing import TYPE_CHECKING

from fleetctl.errors import StateError
from fleetctl.locks import FileLock
from fleetctl.log_files import open_log
from fleetctl_host_local import recorded_environment
from fleetctl_host_local.heartbeat import CONTROLLER_COMPUTING_S, StallWatch, kill_holder
from fleetctl_host_local.inheritance import to_inherit
from fleetctl_host_local.unclaimed import UnclaimedControllers

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from fleetctl.paths import FleetPaths

_log = logging.getLogger("fleetctl.host.local")

# A controller needs a moment to take its lock; one that dies at once is started less and less often.
_BACKOFF_S_START = 3.0
_BACKOFF_S_MAX = 60.0


class Watchdog:
    """Starts missing controllers; asked once a second while the fleet should be up; `now_s` is any clock that does not go back."""

    def __init__(self, paths: FleetPaths, argv: list[str]) -> None:
        self._paths = paths
        self._lock = FileLock(paths.controller_lock)
        self._stall = StallWatch(self._lock, computing_s=CONTROLLER_COMPUTING_S)
        self._argv = argv
        self._unclaimed = UnclaimedControllers(self._lock)
        self._not_before_s = 0.0
        self._backoff_s = _BACKOFF_S_START

    @property
    def children(self) -> tuple[subprocess.Popen[bytes], ...]:
        """The controllers started from here that had not ended at the last look."""
        return self._unclaimed.children

    def check(self, now_s: float, listeners: Sequence[socket.socket]) -> bool:
        """Start a controller if one is missing and may be started now, with these sockets; return whether it was."""
        self._unclaimed.end_stopped(now_s)
        can_start = self._argv and self._paths.home.is_dir()
        if can_start:
            self._end_stalled(now_s)
        if not can_start or self._lock.is_held():
            if now_s > self._not_before_s + _BACKOFF_S_MAX:
                self._backoff_s = _BACKOFF_S_START
            return False
        if now_s < self._not_before_s:
            return False
        self._not_before_s = now_s + self._backoff_s
        self._backoff_s = min(_BACKOFF_S_MAX, self._backoff_s * 2)
        self._start(listeners)
        return True

    def _end_stalled(self, now_s: float) -> None:
        """Kill a controller that holds its lock and does not progress; its successor is started as any missing one."""
        stall = self._stall.look(now_s)
        if stall is not None and kill_holder(self._lock, stall):
            _log.warning(
                "the controller, process %d, is %s, without progress for %.0f s; killed, to be replaced",
                stall.pid, stall.kind.value, stall.for_s,
            )  # fmt: skip
            self._not_before_s = now_s

    def _start(self, listeners: Sequence[socket.socket]) -> None:
        self._paths.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        log_path = self._paths.logs / "controller.log"
        try:
            fds, environ = to_inherit(listeners, recorded_environment.of_controller(self._paths, os.environ))
            with open_log(log_path) as log:
                child = subprocess.Popen(  # noqa: S603  # our own argv, handed down by the controller that started us
                    self._argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=fds,
                    env=environ,
                )
        except (OSError, StateError) as exc:
            _log.error("the controller is missing and cannot be started: %s", exc)
            return
        self._unclaimed.add(child)
        _log.warning("the controller was missing; started %s as process %d", self._argv, child.pid)

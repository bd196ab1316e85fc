"""Starts a missing controller while the fleet should be up."""

from __future__ import annotations

import logging
import subprocess
from typing import TYPE_CHECKING

import msgspec

from fleetctl.errors import ConfigError
from fleetctl.gateway.listeners import hand_over
from fleetctl.state.locks import FileLock

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from fleetctl.paths import FleetPaths

_log = logging.getLogger("fleetctl.gateway")

CONTROLLER_ARGV = "FLEETCTL_CONTROLLER_ARGV"
INTERVAL_S = 1.0
# A controller needs a moment to take its lock; one that dies at once is started less and less often.
_BACKOFF_S_START = 3.0
_BACKOFF_S_MAX = 60.0


def controller_argv(environ: Mapping[str, str]) -> list[str]:
    """Return how to start a controller, from FLEETCTL_CONTROLLER_ARGV; empty: not to. Raises ConfigError."""
    text = environ.get(CONTROLLER_ARGV, "")
    if not text:
        return []
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.DecodeError as exc:
        raise ConfigError(f"{CONTROLLER_ARGV} is not a JSON list of strings: {exc}") from exc


class Watchdog:
    """Looks once a second; `now_s` is any clock that does not go back."""

    def __init__(
        self, paths: FleetPaths, argv: list[str], listeners: list[socket.socket], *, should_be_up: Callable[[], bool]
    ) -> None:
        self._paths = paths
        self._lock = FileLock(paths.controller_lock)
        self._argv = argv
        self._listeners = listeners
        self._should_be_up = should_be_up
        self._children: list[subprocess.Popen[bytes]] = []
        self._not_before_s = 0.0
        self._backoff_s = _BACKOFF_S_START

    def check(self, now_s: float) -> bool:
        """Start a controller if one is missing and may be started now; return whether that was done."""
        self._children = [child for child in self._children if child.poll() is None]
        is_wanted = self._argv and self._should_be_up() and self._paths.runtime.is_dir()
        if not is_wanted or self._lock.is_held():
            if now_s > self._not_before_s + _BACKOFF_S_MAX:
                self._backoff_s = _BACKOFF_S_START
            return False
        if now_s < self._not_before_s:
            return False
        self._not_before_s = now_s + self._backoff_s
        self._backoff_s = min(_BACKOFF_S_MAX, self._backoff_s * 2)
        self._start()
        return True

    def _start(self) -> None:
        fds, environ = hand_over(self._listeners)
        self._paths.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        log_path = self._paths.logs / "controller.log"
        try:
            with log_path.open("ab") as log:
                child = subprocess.Popen(  # noqa: S603  # our own argv, handed down by the controller that started us
                    self._argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=fds,
                    env=environ,
                )
        except OSError as exc:
            _log.error("the controller is missing and cannot be started: %s", exc)
            return
        self._children.append(child)
        _log.warning("the controller was missing; started %s as process %d", self._argv, child.pid)

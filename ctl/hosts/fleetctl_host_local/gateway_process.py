"""The gateway's process and the public port: the port outlives the process, and the process outlives us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from fleetctl.environment import gateway_environment
from fleetctl.locks import FileLock
from fleetctl.log_files import open_log_or_discard
from fleetctl_host_local.activity import is_stopped
from fleetctl_host_local.answering_time import AnsweringTime
from fleetctl_host_local.exit_watch import ExitWatch
from fleetctl_host_local.heartbeat import StallWatch
from fleetctl_host_local.inheritance import inherited_sockets, to_inherit
from fleetctl_host_local.public_port import listen, resolve

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from fleetctl.clock import Clock
    from fleetctl.model.desired import Desired
    from fleetctl.model.profile import GatewaySpec
    from fleetctl.paths import FleetPaths
    from fleetctl.ports.runtime import Stall

_POLL_S = 0.05
# Between taking a lock and writing one's name into it lie microseconds, or as long as a busy machine lets a process wait.
_NOTE_S = 5.0
# What the gateway may take to finish its requests when told to end.
_GATEWAY_FINISH_S = 10
# One of several that is given up while the others serve on: whoever stops it says how long it may take.
_SEVERAL_FINISH_S = 3600


class _DetachedGateway(subprocess.Popen[bytes]):
    """A child that outlives its parent by design, so that forgetting its handle is no leak to warn of."""

    def __del__(self) -> None:
        """Leave the child alone."""


class GatewayProcess:
    """Implements GatewayHost: holds the listening socket, starts the gateway, adopts one that lives already.

    One plain socket, without SO_REUSEPORT: a stranger on the port is then noticed, and the gateway itself makes as
    many listeners of it as it needs. While a killed gateway is started again, connections wait in its backlog.
    """

    def __init__(  # its own number, and what it shares with the others
        self,
        paths: FleetPaths,
        clock: Clock,
        *,
        environ: Mapping[str, str],
        argv: list[str],
        number: int = 1,
        port: PublicListener | None = None,
    ) -> None:
        self._number = number
        self._others: dict[int, GatewayProcess] = {}
        self._port = port or PublicListener(_inherited(environ))
        self._paths = paths
        self._clock = clock
        self._environ = environ
        self._argv = argv  # of this controller: how the gateway starts one that is missing
        self._lock = FileLock(paths.gateway_lock_of(number))
        self._child: _DetachedGateway | None = None
        self._exit_watch = ExitWatch()
        self._stall_watch = StallWatch(self._lock)
        self._answering_time = AnsweringTime()

    def numbered(self, number: int) -> GatewayProcess:
        """Return the keeper of another of the fleet's gateways, on the same port."""
        if number == self._number:
            return self
        if number not in self._others:
            self._others[number] = GatewayProcess(
                self._paths, self._clock, environ=self._environ, argv=self._argv, number=number, port=self._port
            )
        return self._others[number]

    def living(self) -> tuple[int, ...]:
        """Return the numbers of all that live, this one's among them."""
        known = {*self._paths.gateway_numbers, *self._others}
        return tuple(number for number in sorted(known) if self.numbered(number).is_alive())

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Have `on_exit` called as soon as the gateway that lives now ends; to be repeated, as gateways change."""
        self._exit_watch.follow(self._pid(), on_exit)
        for other in self._others.values():
            other.watch(on_exit)

    def is_alive(self) -> bool:
        """Whether a gateway holds its lock, or one we started has not ended."""
        return self._child_runs() or self._lock.is_held()

    def stall(self) -> Stall | None:
        """Return what keeps the gateway from progressing."""
        starting = self._child.pid if self._child is not None and self._child_runs() else 0
        return self._stall_watch.look(self._clock.monotonic_s(), starting_pid=starting)

    def is_beating(self) -> bool:
        """Whether the gateway leaves its signs of life, or is of a version that leaves none."""
        return self._stall_watch.is_beating

    def lost_s(self) -> float:
        """Return how much of the time since the last call it, or this process, spent at work or waiting for a processor."""
        return self._answering_time.lost_s(self._pid() or 0, self._clock.monotonic_s())

    def start(self, desired: Desired) -> int:
        """Start a gateway on the profile's address and return its pid. Raises UnavailableError, ConfigError."""
        listener = self._port.bound(desired.profile.gateway)
        fds, environ = to_inherit([listener], gateway_environment(self._environ), argv=self._argv)
        self._paths.make()
        name = "gateway" if self._number == 1 else f"gateway-{self._number}"
        with open_log_or_discard(self._paths.logs / f"{name}.log") as log:
            self._child = _DetachedGateway(
                # The fleet's name stands right behind the module's, where a process of no fleet is told by it.
                [sys.executable, "-m", "fleetctl.gateway", desired.fleet, *_arguments(desired, self._number)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",  # it must not keep anybody's directory busy
                pass_fds=fds,
                env=environ,
            )
        return self._child.pid

    async def stop(self, *, within_s: float) -> None:
        """Ask the gateway to end, and make it after `within_s`."""
        pid = await self._named_pid()
        if pid is None:
            return
        # A process that is stopped takes no signal but the last.
        finish_s = 0.0 if is_stopped(pid) else within_s
        for number, patience_s in ((signal.SIGTERM, finish_s), (signal.SIGKILL, 2.0)):
            # The lock is looked at right before: while its holder lives, its pid is nobody else's.
            if self._pid() != pid:
                return
            _signal(pid, number)
            deadline_s = self._clock.monotonic_s() + patience_s
            while self._pid() == pid and self._clock.monotonic_s() < deadline_s:
                await self._clock.sleep(_POLL_S)

    async def _named_pid(self) -> int | None:
        """Return the pid of the gateway that lives; one that has just taken its lock is given a moment to write it."""
        deadline_s = self._clock.monotonic_s() + _NOTE_S
        while (pid := self._pid()) is None and self.is_alive() and self._clock.monotonic_s() < deadline_s:
            await self._clock.sleep(_POLL_S)
        return pid

    def release_port(self) -> bool:
        """Close the public port, so that clients are refused at once instead of waiting for nobody."""
        return self._port.release()

    def _child_runs(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def _pid(self) -> int | None:
        if self._child is not None and self._child_runs():
            return self._child.pid
        if not self._lock.is_held():
            return None
        try:
            return _pid_in(self._lock.path.read_bytes())
        except FileNotFoundError:
            return None


class PublicListener:
    """The listening socket that all gateways of a fleet inherit: whoever lives and has time takes a connection."""

    def __init__(self, listener: socket.socket | None) -> None:
        self._listener = listener

    def bound(self, spec: GatewaySpec) -> socket.socket:
        """Return the listening socket, bound anew if the profile's address has changed. Raises UnavailableError."""
        if self._listener is not None and not _is_at(self._listener, spec):
            self.release()
        if self._listener is None:
            self._listener = listen(spec.host, spec.port)
        return self._listener

    def release(self) -> bool:
        """Close it; return whether it was open."""
        if self._listener is None:
            return False
        self._listener.close()
        self._listener = None
        return True


def _arguments(desired: Desired, number: int) -> list[str]:
    """Return what a gateway is told beside its fleet: one of several has none of their limits until it is given some."""
    tls = ["--tls"] if desired.profile.gateway.tls is not None else []
    if desired.profile.gateway.processes == 1 and number == 1:
        return ["--stop-timeout-s", str(_GATEWAY_FINISH_S), *tls]
    return ["--stop-timeout-s", str(_SEVERAL_FINISH_S), "--number", str(number), "--beside", *tls]


def _inherited(environ: Mapping[str, str]) -> socket.socket | None:
    """Return the first listening socket handed over by a gateway that started us; close the rest."""
    found = inherited_sockets(environ)
    for listener in found[1:]:
        listener.close()
    return found[0] if found else None


def _is_at(listener: socket.socket, spec: GatewaySpec) -> bool:
    host, port = listener.getsockname()[:2]
    return bool(port == spec.port and host == resolve(spec.host, spec.port)[1][0])


def _pid_in(note: bytes) -> int | None:
    """Return the pid in a lock file: a bare number, or a holder's note."""
    try:
        value = msgspec.json.decode(note)
    except msgspec.DecodeError:
        return None
    pid = value.get("pid") if isinstance(value, dict) else value
    return pid if isinstance(pid, int) and pid > 1 else None


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return

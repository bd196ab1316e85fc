"""The gateway process: lock, table, listeners, admin socket, signals, clockwork."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fleetctl import codec
from fleetctl.core.routing.registry import unknown_names
from fleetctl.gateway import admin, listeners
from fleetctl.gateway.control import ControlSurface
from fleetctl.gateway.tls import client_protocol
from fleetctl.locks import FileLock
from fleetctl.model.gateway import RoutingTable
from fleetctl.unix_server import UnixServer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from fleetctl.clock import Clock
    from fleetctl.gateway.frontend import Frontend
    from fleetctl.gateway.limits import GatewayLimits
    from fleetctl.paths import FleetPaths
    from fleetctl.ports.runtime import GatewayRuntime

_log = logging.getLogger("fleetctl.gateway")
_CONTROLLER_CHECK_S = 1.0
_PART_POLL_S = 0.02
_LEAVE_POLL_S = 0.1


def read_table(path: Path) -> RoutingTable | None:
    """Return the last table the controller wrote. None: there is none, or it is unreadable, which is logged."""
    try:
        table = codec.decode(RoutingTable, path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as exc:
        _log.error("the routing table %s cannot be used: %s; waiting for the controller", path, exc)
        return None
    if unknown := unknown_names(table.routing):
        _log.error("the routing table %s names what is not here: %s; waiting for the controller", path, unknown)
        return None
    return table


def connections_max(limits: GatewayLimits, files_max: int) -> int:
    """Return how many clients may be connected: a quarter of the open files is kept for replicas, refusals and logs."""
    return limits.connections_max if files_max < 0 else min(limits.connections_max, files_max * 3 // 4)


class Listening:
    """The servers on the public port. Sockets given stay open here, to be handed to a controller."""

    def __init__(self, frontend: Frontend, sockets: list[socket.socket]) -> None:
        self._frontend = frontend
        self._sockets = sockets
        self._servers: list[asyncio.Server] = []
        self.is_open = False

    async def start(self) -> None:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        for sock in listeners.accepting(self._sockets):
            sock.setblocking(False)
            self._servers.append(
                await loop.create_server(lambda: client_protocol(self._frontend), sock=sock, backlog=4096)
            )
        self.is_open = True

    def stop(self) -> None:
        """Accept no more; those who come wait in the backlog of whoever else holds the sockets."""
        self.is_open = False
        for server in self._servers:
            server.close()
        for sock in self._sockets:
            sock.close()


class ControlAt(NamedTuple):
    """Where a controller's calls come over TCP, and the file that has their token."""

    addresses: tuple[str, ...]
    port: int
    token: Path
    opens_metrics: bool = False  # to whoever reaches the port


async def serve(
    frontend: Frontend,
    paths: FleetPaths,
    sockets: list[socket.socket],
    runtime: GatewayRuntime,
    clock: Clock,
    *,
    control_at: ControlAt | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is in flight. Raises ConfigError."""
    loop = asyncio.get_running_loop()
    table = read_table(paths.routing_table)
    if table is not None:
        frontend.apply(table)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    started_as = frontend.pages.number  # a controller that finds it over TCP calls it by another, and its socket stays
    control = UnixServer(admin.app(frontend), paths, lambda paths: paths.gateway_socket_of(started_as))
    await control.start()
    listening = Listening(frontend, sockets)
    if control_at is None:
        frontend.pages.peers = lambda: _peers(paths, frontend.pages.number)
        remote = None
    else:
        remote = ControlSurface(
            frontend, token=control_at.token, is_ready=lambda: _is_ready(frontend, listening),
            opens_metrics=control_at.opens_metrics,
        )  # fmt: skip
        await remote.start(control_at.addresses, control_at.port)
    beginning = loop.create_task(_listen(frontend, listening, clock))
    sweeping = loop.create_task(_every(frontend.limits.sweep_interval_s, clock, frontend.sweep))
    watching = [
        loop.create_task(control.keep(clock, is_ours=runtime.is_claimed)),
        loop.create_task(
            _every(_CONTROLLER_CHECK_S, clock, lambda: _check_processes(frontend, runtime, clock, sockets, stopped))
        ),
    ]
    # One that hangs before its first check is told from one that is starting by this.
    runtime.beat(clock.monotonic_s())
    _log.info("serving %s on %s", paths.fleet, listeners.describe(sockets))
    await stopped.wait()
    await _leave(frontend, clock)
    for task in (beginning, *watching):
        task.cancel()
    listening.stop()
    await drain(frontend, clock, on_wait=lambda: runtime.beat(clock.monotonic_s()))
    sweeping.cancel()
    await control.close()
    if remote is not None:
        await remote.close()


def _peers(paths: FleetPaths, number: int) -> dict[int, Path]:
    """Return the admin sockets of the other gateways that live, by number."""
    others = (n for n in paths.gateway_numbers if n != number and FileLock(paths.gateway_lock_of(n)).is_held())
    return {n: paths.gateway_socket_of(n) for n in others}


async def _listen(frontend: Frontend, listening: Listening, clock: Clock) -> None:
    """Accept connections; one of several once it has its part of what it may give them: the others take them until then.

    One of TLS once it knows its certificate: nothing is answered in clear before.
    """
    while frontend.dispatcher.sharing.awaits_part or frontend.gauges.certificate.is_awaited:
        await clock.sleep(_PART_POLL_S)
    await listening.start()


def _is_ready(frontend: Frontend, listening: Listening) -> bool:
    """Whether clients are served here; one that is leaving serves on, for whom nobody else is there yet."""
    return listening.is_open and _should_be_up(frontend)


async def _leave(frontend: Frontend, clock: Clock) -> None:
    """Serve on for as long as others may take to learn that we go; nobody waits for a fleet that is down.

    No connection is kept for another request meanwhile.
    """
    frontend.is_stopping = True
    end_s = clock.monotonic_s() + frontend.limits.leave_s
    while clock.monotonic_s() < end_s and _should_be_up(frontend):
        await clock.sleep(_LEAVE_POLL_S)


async def drain(frontend: Frontend, clock: Clock, *, on_wait: Callable[[], None] = lambda: None) -> None:
    """Finish what is in flight, up to the deadline; cut what is left."""
    frontend.stop()
    deadline_s = clock.monotonic_s() + frontend.limits.stop_timeout_s
    while (frontend.is_busy or frontend.connections) and clock.monotonic_s() < deadline_s:
        await clock.sleep(0.05)
        on_wait()
        frontend.stop()
    if frontend.connections:
        _log.warning("cutting %d connections that outlived the deadline", frontend.connections)
    frontend.cut()
    await clock.sleep(0)


async def _every(interval_s: float, clock: Clock, act: Callable[[], object]) -> None:
    while True:
        await clock.sleep(interval_s)
        try:
            act()
        except Exception:  # noqa: BLE001  # logged with its traceback; see below
            # One odd connection must not end the deadlines of all others.
            _log.exception("a periodic check failed; it will be tried again")


def _check_processes(
    frontend: Frontend, runtime: GatewayRuntime, clock: Clock, sockets: list[socket.socket], stopped: asyncio.Event
) -> None:
    """Leave a sign of life; start a missing controller; make room for another gateway that has taken our place."""
    runtime.beat(clock.monotonic_s())
    if not runtime.is_claimed():
        _log.error("another gateway has taken this fleet; finishing what is in flight, then ending")
        stopped.set()
    elif _should_be_up(frontend):
        runtime.ensure_controller(clock.monotonic_s(), sockets)


def _should_be_up(frontend: Frontend) -> bool:
    table = frontend.dispatcher.routes.table
    return table is not None and bool(table.lanes)

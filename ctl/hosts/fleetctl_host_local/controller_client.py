"""Speaks to a fleet's controller over its Unix socket."""

from __future__ import annotations

import http.client
import socket
from typing import TYPE_CHECKING

import msgspec

from fleetctl.codec import decode
from fleetctl.errors import UnavailableError
from fleetctl.model.status import FleetStatus
from fleetctl.paths import FleetPaths
from fleetctl.ports.host import STATUS_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_LINE_BYTES_MAX = 16 * 1024 * 1024  # a status of a thousand replicas is below one
_STREAM_GAP_S = 10.0  # ten default ticks without a line: the stream is dead, whatever its socket says


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, *, deadline_s: float) -> None:
        super().__init__("localhost", timeout=deadline_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def status(fleet: str, *, deadline_s: float = STATUS_S) -> FleetStatus:
    """Return what the controller says of its fleet. Raises UnavailableError."""
    raw = _call(fleet, "GET", "/v1/status", deadline_s=deadline_s)
    try:
        return decode(FleetStatus, raw)
    except msgspec.ValidationError as exc:
        raise UnavailableError(
            f"the controller of {fleet} gave a status this version cannot read: {exc}",
            hint="it may run another version of fleetctl; end its process and run the command again",
        ) from exc


def wake(fleet: str, *, deadline_s: float = STATUS_S) -> None:
    """Have the controller decide now instead of at its next tick. Raises UnavailableError."""
    _call(fleet, "POST", "/v1/wake", deadline_s=deadline_s)


def _call(fleet: str, method: str, path: str, *, deadline_s: float) -> bytes:
    connection = _UnixConnection(FleetPaths(fleet=fleet).controller_socket, deadline_s=deadline_s)
    try:
        connection.request(method, path, headers={"connection": "close"})
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as exc:
        raise UnavailableError(f"the controller of {fleet} does not answer: {exc}") from exc
    finally:
        connection.close()
    if response.status >= 300:
        raise UnavailableError(f"the controller of {fleet} answered {response.status} to {method} {path}")
    return body


async def stream(fleet: str) -> AsyncIterator[FleetStatus]:
    """Yield the controller's statuses until it goes away. Raises UnavailableError."""
    import aiohttp

    connector = aiohttp.UnixConnector(path=str(FleetPaths(fleet=fleet).controller_socket))
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=STATUS_S, sock_read=_STREAM_GAP_S)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=_LINE_BYTES_MAX) as session,
            session.get("http://localhost/v1/stream", raise_for_status=True) as response,
        ):
            async for line in response.content:
                if line.strip():
                    yield decode(FleetStatus, line)
    # aiohttp reports a line over the limit as a ValueError, as msgspec does what is no status.
    except (aiohttp.ClientError, TimeoutError, ValueError) as exc:
        raise UnavailableError(f"the stream of {fleet}'s controller ended: {exc}") from exc

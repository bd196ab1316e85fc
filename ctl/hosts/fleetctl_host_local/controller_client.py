"""Speaks to a fleet's controller over its Unix socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fleetctl.codec import decode
from fleetctl.errors import UnavailableError
from fleetctl.model.status import FleetStatus
from fleetctl.paths import FleetPaths
from fleetctl.ports.host import STATUS_S
from fleetctl_host_local.unix_connection import call

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_LINE_BYTES_MAX = 16 * 1024 * 1024  # a status of a thousand replicas is below one
_STREAM_GAP_S = 10.0  # ten default ticks without a line: the stream is dead, whatever its socket says


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
    return call(
        FleetPaths(fleet=fleet).controller_socket, method, path, of=f"the controller of {fleet}", deadline_s=deadline_s
    )


async def stream(fleet: str) -> AsyncIterator[FleetStatus]:
    """Yield the controller's statuses until it goes away. Raises UnavailableError."""
    import httpx

    transport = httpx.AsyncHTTPTransport(uds=str(FleetPaths(fleet=fleet).controller_socket))
    timeout = httpx.Timeout(STATUS_S, read=_STREAM_GAP_S)
    try:
        async with (
            httpx.AsyncClient(transport=transport, timeout=timeout) as client,
            client.stream("GET", "http://localhost/v1/stream") as response,
        ):
            response.raise_for_status()
            async for line in _lines(response.aiter_bytes()):
                yield decode(FleetStatus, line)
    except (httpx.HTTPError, msgspec.ValidationError, msgspec.DecodeError) as exc:
        raise UnavailableError(f"the stream of {fleet}'s controller ended: {exc}") from exc


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what stands between line ends. Raises UnavailableError for a line that never ends."""
    begun = b""
    async for piece in pieces:
        *lines, begun = (begun + piece).split(b"\n")
        if len(begun) > _LINE_BYTES_MAX:
            raise UnavailableError(f"a status longer than {_LINE_BYTES_MAX} bytes is none")
        for line in lines:
            if line:
                yield line

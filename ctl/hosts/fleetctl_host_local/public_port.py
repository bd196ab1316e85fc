"""The gateway's public port on this machine: bound, probed, or a free one found."""

from __future__ import annotations

import errno
import ipaddress
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from fleetctl.errors import UnavailableError
from fleetctl_host_local.orphaned_processes import fleet_of_gateway

if TYPE_CHECKING:
    import psutil

_BACKLOG = 4096
_CONNECT_S = 2.0


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Return the family and the numeric address to bind."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return family, (str(address[0]), int(address[1]))


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there. Raises UnavailableError."""
    listener = _bound(host, port)
    try:
        listener.listen(_BACKLOG)
    except OSError as exc:
        listener.close()
        raise _unavailable(host, port, exc) from exc
    return listener


def check_port(host: str, port: int) -> None:
    """Return if a gateway could listen there now. Raises UnavailableError."""
    _bound(host, port).close()


def accepts(host: str, port: int) -> bool:
    """Whether a connection can be made; one that listens on every address is asked on loopback."""
    family, (address, _) = resolve(host, port)
    if ipaddress.ip_address(address).is_unspecified:
        address = "::1" if family is socket.AF_INET6 else "127.0.0.1"
    try:
        socket.create_connection((address, port), timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True


def free_port(host: str) -> int:
    """Return a port nobody listens on. Raises UnavailableError."""
    with _bound(host, 0) as probe:
        return int(probe.getsockname()[1])


def _bound(host: str, port: int) -> socket.socket:
    family, address = resolve(host, port)
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Without it a port whose last connections linger in TIME_WAIT could not be bound again.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as exc:
        bound.close()
        raise _unavailable(host, port, exc) from exc
    return bound


def _unavailable(host: str, port: int, fault: OSError) -> UnavailableError:
    if fault.errno != errno.EADDRINUSE:
        return UnavailableError(
            f"the gateway's port {port} on {host} cannot be had: {fault.strerror}",
            hint="give the gateway another: fleetctl up --port N",
        )
    holder = _holder(port)
    fleet = fleet_of_gateway(holder.cmdline()) if holder is not None else ""
    if holder is not None and fleet:
        # That fleet is somebody's, under another state directory: never a process to end.
        return UnavailableError(
            f"the gateway's port {port} on {host} is in use by the gateway of fleet {fleet} (pid {holder.pid})",
            hint="give this gateway another port: fleetctl up --port N",
        )
    by = f"{holder.name()} (pid {holder.pid})" if holder is not None else "another program"
    return UnavailableError(
        f"the gateway's port {port} on {host} is in use by {by}",
        hint="give the gateway another: fleetctl up --port N; or end what listens there",
    )


def _holder(port: int) -> psutil.Process | None:
    """Return the process that listens on a port, as far as this user may see it."""
    import psutil

    with suppress(psutil.Error):
        for found in psutil.net_connections("tcp"):
            if found.status == psutil.CONN_LISTEN and found.pid and found.laddr and found.laddr.port == port:
                return psutil.Process(found.pid)
    return None

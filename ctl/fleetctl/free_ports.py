"""Picks loopback ports that outgoing connections cannot take meanwhile."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from fleetctl.errors import CapacityError

_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_IANA_EPHEMERAL_LOW = 49152  # where a system does not say (macOS: 49152-65535)
_LOW = 20000
_PORTS_FREE_MIN = 1000  # ports below the ephemeral range that make staying out of it worth while


def candidates() -> range:
    """Return the ports to choose from: below the range the kernel gives to outgoing connections, if there is room."""
    low, high = _ephemeral()
    if low - _LOW >= _PORTS_FREE_MIN:
        return range(_LOW, low)
    if low - 1024 >= _PORTS_FREE_MIN:
        return range(1024, low)
    if 65535 - high >= _PORTS_FREE_MIN:
        return range(high + 1, 65536)
    return range(_LOW, 65536)


def free_port(*, avoid: frozenset[int]) -> int:
    """Return a port nobody listens on. Raises CapacityError when there is none."""
    ports = candidates()
    # Two processes asking at once start far apart, for neither sees the other's choice before it is bound.
    start = os.getpid() * 97 % len(ports)
    for offset in range(len(ports)):
        port = ports[(start + offset) % len(ports)]
        if port not in avoid and _is_free(port):
            return port
    raise CapacityError(f"no free port between {ports[0]} and {ports[-1]}", hint="stop what listens there")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _ephemeral() -> tuple[int, int]:
    try:
        low, high = _RANGE_FILE.read_text().split()
    except FileNotFoundError:
        return _IANA_EPHEMERAL_LOW, 65535
    return int(low), int(high)

"""Ports for what tests start."""

from __future__ import annotations

from fleetctl import free_ports

_given: set[int] = set()


def free_port() -> int:
    """Return a port nobody listens on, that no outgoing connection takes until somebody does, and that nobody else here is given.

    What is killed may be started at it again: a port from the range of outgoing connections may be somebody's by then.
    """
    port = free_ports.free_port(avoid=frozenset(_given))
    _given.add(port)
    return port

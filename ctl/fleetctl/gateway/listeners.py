"""The public port: what the host handed over, or bound here, and how it is accepted from."""

from __future__ import annotations

import ipaddress
import socket

# uvloop accepts one connection per listener and turn: with sixteen, a burst of 800 new streams waits 19 ms at P99
# instead of 402 (measured with one and sixteen SO_REUSEPORT listeners in one process).
LISTENERS = 16
_BACKLOG = 4096


def bind(host: str, port: int, count: int = LISTENERS) -> list[socket.socket]:
    """Return `count` sockets listening on the same address; port 0 takes a free one. Raises OSError."""
    sockets: list[socket.socket] = []
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    for _ in range(count):
        listener = socket.socket(family, kind)
        sockets.append(listener)
        # SO_REUSEADDR would let a second fleet's gateway share the port unnoticed only on other systems; SO_REUSEPORT
        # shares it among the sockets of one user.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        address = listener.getsockname()
    return sockets


def accepting(listeners: list[socket.socket]) -> list[socket.socket]:
    """Return at least LISTENERS sockets to accept from, duplicating those given: each gets its own turn."""
    copies = max(1, LISTENERS // max(1, len(listeners)))
    return [listener.dup() for listener in listeners for _ in range(copies)]


def are_loopback(listeners: list[socket.socket]) -> bool:
    """Whether only this machine can reach every one of them."""
    return all(
        listener.family == socket.AF_UNIX or ipaddress.ip_address(listener.getsockname()[0]).is_loopback
        for listener in listeners
    )


def describe(listeners: list[socket.socket]) -> str:
    """Return "host:port" of the first."""
    host, port = listeners[0].getsockname()[:2]
    return f"{host}:{port}"

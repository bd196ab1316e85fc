"""What controller and gateway hand each other when one starts the other: listening sockets, and the controller's argv."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import msgspec

from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LISTEN_FDS = "FLEETCTL_LISTEN_FDS"  # comma-separated descriptors
CONTROLLER_ARGV = "FLEETCTL_CONTROLLER_ARGV"  # a JSON list: how the gateway starts a controller that is missing


def inherited_sockets(environ: Mapping[str, str]) -> list[socket.socket]:
    """Return the listening sockets named in FLEETCTL_LISTEN_FDS, not inheritable further. Raises ConfigError."""
    text = environ.get(LISTEN_FDS, "")
    sockets: list[socket.socket] = []
    for part in text.split(",") if text else ():
        try:
            listener = socket.socket(fileno=int(part))
            is_listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except (ValueError, OSError) as exc:
            raise ConfigError(f"{LISTEN_FDS}={text!r}: {part!r} is no open socket: {exc}") from exc
        if not is_listening:
            raise ConfigError(f"{LISTEN_FDS}={text!r}: descriptor {part} does not listen")
        listener.set_inheritable(False)
        sockets.append(listener)
    return sockets


def inherited_argv(environ: Mapping[str, str]) -> list[str]:
    """Return how to start a controller, from FLEETCTL_CONTROLLER_ARGV; empty: not to. Raises ConfigError."""
    text = environ.get(CONTROLLER_ARGV, "")
    if not text:
        return []
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.DecodeError as exc:
        raise ConfigError(f"{CONTROLLER_ARGV} is not a JSON list of strings: {exc}") from exc


def to_inherit(
    listeners: Sequence[socket.socket], environ: Mapping[str, str], *, argv: Sequence[str] = ()
) -> tuple[tuple[int, ...], dict[str, str]]:
    """Return the descriptors to pass to a child process and the environment that names them, and `argv` if given."""
    fds = tuple(listener.fileno() for listener in listeners)
    environment = {**environ, LISTEN_FDS: ",".join(map(str, fds))}
    if argv:
        environment[CONTROLLER_ARGV] = msgspec.json.encode(list(argv)).decode()
    return fds, environment

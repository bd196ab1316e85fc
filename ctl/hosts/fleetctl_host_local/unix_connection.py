"""HTTP over a Unix socket."""

from __future__ import annotations

import http.client
import socket
from typing import TYPE_CHECKING

from fleetctl.errors import UnavailableError

if TYPE_CHECKING:
    from pathlib import Path


class UnixConnection(http.client.HTTPConnection):
    """One connection, whose every wait has the deadline."""

    def __init__(self, path: Path, *, deadline_s: float) -> None:
        super().__init__("localhost", timeout=deadline_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket's path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def call(path: Path, method: str, target: str, *, of: str, deadline_s: float) -> bytes:
    """Return the body of one answer from the socket at `path`. Raises UnavailableError, naming whose it is: `of`."""
    connection = UnixConnection(path, deadline_s=deadline_s)
    try:
        connection.request(method, target, headers={"connection": "close"})
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as exc:
        raise UnavailableError(f"{of} does not answer: {exc}") from exc
    finally:
        connection.close()
    if response.status >= 300:
        raise UnavailableError(f"{of} answered {response.status} to {method} {target}: {body[:200]!r}")
    return body

"""HTTP over a Unix socket."""

from __future__ import annotations

import http.client
import socket
from typing import TYPE_CHECKING

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

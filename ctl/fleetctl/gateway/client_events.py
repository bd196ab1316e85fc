"""The events of a client connection that its exchange handles."""

from __future__ import annotations

from typing import Protocol


class ClientEvents(Protocol):
    """Events of a client connection that its exchange is told of: the client has left, reads too slowly, or reads again."""

    def client_gone(self) -> None:
        """Stop: nobody will read it."""
        ...

    def client_behind(self) -> None:
        """Stop sending: the client does not read fast enough."""
        ...

    def client_ready(self) -> None:
        """Send on."""
        ...

"""What an exchange hears of its client."""

from __future__ import annotations

from typing import Protocol


class ClientEvents(Protocol):
    """What a client does while its request is being answered, as the exchange at hand hears of it."""

    def client_gone(self) -> None:
        """Stop: nobody will read it."""
        ...

    def client_behind(self) -> None:
        """Stop sending: the client does not read fast enough."""
        ...

    def client_ready(self) -> None:
        """Send on."""
        ...

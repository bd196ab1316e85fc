"""The clients' connections: as many as are allowed, of which those that only wait make room for those that ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.gateway.client import ClientConnection

# How many are looked at to find an idle one: where nearly all are busy, a new one is refused rather than searched for.
_LOOKED_AT_MAX = 64
# Refused ones are told so, for which each lives a moment longer; in a flood of them, the rest are just closed.
_REFUSED_SHARE = 8  # an eighth of all
_REFUSED_MIN = 16


class OpenConnections:
    """Every open connection, oldest first; one found busy counts as new."""

    __slots__ = ("_connections_max", "_open", "displaced")

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._open: dict[ClientConnection, None] = {}
        self.displaced = 0  # closed while idle, to make room

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def __contains__(self, client: ClientConnection) -> bool:
        """Whether it is open."""
        return client in self._open

    def __iter__(self) -> Iterator[ClientConnection]:
        """Return those open now; they may close meanwhile."""
        return iter(tuple(self._open))

    def admit(self, client: ClientConnection) -> bool:
        """Take a new one in; False: there are too many, and it is to be told so. One too many even for that is closed."""
        self._open[client] = None
        count = len(self._open)
        if count <= self._connections_max or self._displace_idle(client):
            return True
        if count > self._connections_max + max(_REFUSED_MIN, self._connections_max // _REFUSED_SHARE):
            client.cut()
            return True
        return False

    def rested(self, client: ClientConnection) -> None:
        """Count one whose request has ended as new, where room is getting short: it is likelier to ask again than others."""
        if len(self._open) > self._connections_max // 2 and client in self._open:
            del self._open[client]
            self._open[client] = None

    def discard(self, client: ClientConnection) -> None:
        """Forget one that has closed."""
        self._open.pop(client, None)

    def _displace_idle(self, newest: ClientConnection) -> bool:
        """Close the oldest of those that are idle."""
        for _ in range(_LOOKED_AT_MAX):
            oldest = next(iter(self._open))
            if oldest is newest:
                return False
            del self._open[oldest]
            if oldest.is_idle:
                self.displaced += 1
                oldest.cut()
                return True
            self._open[oldest] = None
        return False

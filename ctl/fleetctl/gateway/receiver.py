"""Who gets a replica's response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fleetctl.gateway import wire


class Receiver(Protocol):
    """Gets one response. After `complete` or `lost` the connection is not its own any more."""

    def head(self, status: int, headers: list[wire.Header]) -> None:
        """Take the status and the headers, names in lower case."""
        ...

    def body(self, data: bytes, now_s: float) -> None:
        """Take what one read brought of the body, without transfer coding."""
        ...

    def complete(self) -> None:
        """Note that the response is whole."""
        ...

    def lost(self, *, answered: bool, reused: bool, is_lawful: bool = True) -> None:
        """Note that the connection broke; `answered`: some byte had come; `reused`: it had been idle before.

        Not `is_lawful`: it was broken off, as the replica broke HTTP or a bound that is set to it.
        """
        ...

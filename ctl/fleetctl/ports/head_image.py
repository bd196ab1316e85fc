"""What a host does with the machine image of a fleet's heads, and what it shows of the head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from fleetctl.model.head import HeadStatus


@runtime_checkable
class HeadImageKeeper(Protocol):
    """Capability of a host whose machine starts from an image that is kept by its id."""

    def refresh_image(self, fleet: str) -> None:
        """Look the image of the fleet's next head up anew, and tell of it; the head that runs stays.

        What cannot be looked up stays as it was, and that is told too.
        """
        ...


@runtime_checkable
class HeadReader(Protocol):
    """Capability of a host that is a machine of the fleet's own."""

    def head_status(self) -> HeadStatus | None:
        """Return what is on record of the newest head; None: none was ordered. Raises StateError."""
        ...

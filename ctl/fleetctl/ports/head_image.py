"""What a host does with the machine image of a fleet's heads."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class HeadImageKeeper(Protocol):
    """Capability of a host whose machine starts from an image that is kept by its id."""

    def refresh_image(self, fleet: str) -> None:
        """Look the image of the fleet's next head up anew, and tell of it; the head that runs stays.

        What cannot be looked up stays as it was, and that is told too.
        """
        ...

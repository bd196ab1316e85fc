"""In which order the requests of one client leave its queue."""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

T_contra = TypeVar("T_contra", contravariant=True)

# Whoever has waited longest is overtaken by so many later ones at most: no order starves anybody.
BYPASSED_MAX: Final = 16


class QueueOrder(Protocol[T_contra]):
    """Ranks the waiting requests of one client; without one they leave as they came."""

    def rank(self, item: T_contra, now_s: float) -> float:
        """Return where a request that joins now stands: the lower the sooner, equal ones as they came.

        Called once, as it joins. It may be overtaken by BYPASSED_MAX later ones at most, whatever their ranks.
        """
        ...

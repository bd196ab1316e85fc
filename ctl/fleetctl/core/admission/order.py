"""In which order the requests of one client leave its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.admission.queue import Ticket

T = TypeVar("T")
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


def first_of(tickets: Iterable[Ticket[T]]) -> tuple[Ticket[T] | None, Ticket[T] | None]:
    """Return who of those that wait, given in the order they came, leaves next, and who has waited longest. None: nobody."""
    oldest = first = None
    for ticket in tickets:
        if not ticket.waiting:
            continue
        if oldest is None:
            oldest = first = ticket
            if oldest.bypassed >= BYPASSED_MAX:
                break
        elif first is not None and ticket.rank < first.rank:
            first = ticket
    return first, oldest

"""A lane's bounded queue of waiting requests."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from fleetctl.core.admission.order import BYPASSED_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.admission.order import QueueOrder

T = TypeVar("T")


class Ticket(Generic[T]):
    """A place in a queue."""

    __slots__ = ("bypassed", "deadline_s", "item", "rank", "since_s", "waiting")

    def __init__(self, *, item: T, since_s: float, deadline_s: float) -> None:
        self.item = item
        self.since_s = since_s
        self.deadline_s = deadline_s
        self.waiting = True
        self.rank = 0.0  # by the queue's order, where it has one
        self.bypassed = 0  # later ones that left before it, while nobody had waited longer


class LaneQueue(Generic[T]):
    """First come, first served, up to `size_max`; each waits until its own deadline. `now_s` never goes back.

    What has been accepted once and lost its replica goes back in front (`requeue`), beyond the bound: it was promised
    an answer, and its number is bounded by what was in flight. An `order` says who goes first of those that were not.
    """

    __slots__ = ("_tickets", "order", "size", "size_max")

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self._tickets: deque[Ticket[T]] = deque()
        self.order: QueueOrder[T] | None = None  # None: as they came
        self.size = 0  # how many wait; read for every request, where `len` would be a call

    def __len__(self) -> int:
        return self.size

    @property
    def is_full(self) -> bool:
        """Whether nothing new may enter."""
        return self.size >= self.size_max

    def offer(self, item: T, *, now_s: float, wait_max_s: float) -> Ticket[T] | None:
        """Join at the end. None: full."""
        if self.is_full:
            return None
        ticket = Ticket(item=item, since_s=now_s, deadline_s=now_s + wait_max_s)
        if self.order is not None:
            ticket.rank = self.order.rank(item, now_s)
        self._tickets.append(ticket)
        self.size += 1
        return ticket

    def requeue(self, item: T, *, now_s: float, wait_max_s: float) -> Ticket[T]:
        """Join in front."""
        ticket = Ticket(item=item, since_s=now_s, deadline_s=now_s + wait_max_s)
        ticket.rank = float("-inf")
        self._tickets.appendleft(ticket)
        self.size += 1
        return ticket

    def rejoin(self, item: T, *, since_s: float, deadline_s: float) -> Ticket[T]:
        """Join at the end as one who has waited elsewhere since then, and is bounded there."""
        ticket = Ticket(item=item, since_s=since_s, deadline_s=deadline_s)
        if self.order is not None:
            ticket.rank = self.order.rank(item, since_s)
        self._join(ticket)
        return ticket

    def _join(self, ticket: Ticket[T], *, goes_first: bool = False) -> None:
        if goes_first:
            self._tickets.appendleft(ticket)
        else:
            self._tickets.append(ticket)
        self.size += 1

    def peek(self) -> T | None:
        """Return who is next, leaving it there. None: nobody waits."""
        self._drop_left()
        if self.order is not None:
            first, _ = first_of(self._tickets)
            return first.item if first is not None else None
        return self._tickets[0].item if self._tickets else None

    def pop(self) -> Ticket[T] | None:
        """Take who is next. None: nobody waits."""
        self._drop_left()
        if not self._tickets:
            return None
        if self.order is not None:
            return self._pop_by_order()
        ticket = self._tickets.popleft()
        self._leave(ticket)
        return ticket

    def _pop_by_order(self) -> Ticket[T] | None:
        first, oldest = first_of(self._tickets)
        if first is None or oldest is None:
            return None
        if first is not oldest:
            oldest.bypassed += 1
        self.cancel(first)
        self._drop_left()
        return first

    def tickets(self) -> list[Ticket[T]]:
        """Return everyone waiting, in order."""
        return [t for t in self._tickets if t.waiting]

    def cancel(self, ticket: Ticket[T]) -> None:
        """Leave the queue; idempotent."""
        if ticket.waiting:
            self._leave(ticket)
            # Cancelled places are dropped at the front or here, so they never outnumber the living for long.
            if len(self._tickets) > 2 * self.size + 16:
                self._tickets = deque(t for t in self._tickets if t.waiting)

    def expire(self, now_s: float) -> list[T]:
        """Take everyone whose deadline has come, in order."""
        late = [t for t in self._tickets if t.waiting and t.deadline_s <= now_s]
        for ticket in late:
            self._leave(ticket)
        self._drop_left()
        return [t.item for t in late]

    def next_deadline_s(self) -> float | None:
        """Return when `expire` next has work, or None."""
        return min((t.deadline_s for t in self._tickets if t.waiting), default=None)

    def oldest_wait_s(self, now_s: float) -> float:
        """Return how long the longest waiting has waited; 0 when nobody does."""
        return max((now_s - t.since_s for t in self._tickets if t.waiting), default=0.0) if self.size else 0.0

    def _leave(self, ticket: Ticket[T]) -> None:
        ticket.waiting = False
        self.size -= 1

    def _drop_left(self) -> None:
        while self._tickets and not self._tickets[0].waiting:
            self._tickets.popleft()


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

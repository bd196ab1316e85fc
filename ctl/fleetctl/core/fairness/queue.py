"""A lane's queue where it has tiers: fair between tiers, then between a tier's clients, then in the order of each client."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol, TypeVar

from fleetctl.core.admission.queue import LaneQueue, Ticket, first_of

if TYPE_CHECKING:
    from fleetctl.core.fairness.lane_tiers import LaneTiers
    from fleetctl.core.fairness.tier import LaneTier


class TieredItem(Protocol):
    """What is queued fairly."""

    tier: LaneTier | None
    client: int


I = TypeVar("I", bound=TieredItem)  # noqa: E741  # the queue's items


class FairQueue(LaneQueue[I]):
    """Bounded as any lane's; where it is full, whoever has more than its part of it makes room for who has less."""

    __slots__ = ("_lines", "_sizes", "_tiers")

    def __init__(self, size_max: int, tiers: LaneTiers) -> None:
        super().__init__(size_max)
        self._tiers = tiers
        self._lines: dict[LaneTier, dict[int, deque[Ticket[I]]]] = {}
        self._sizes: dict[LaneTier, int] = {}  # how many of each tier wait here

    def offer(self, item: I, *, now_s: float, wait_max_s: float) -> Ticket[I] | None:
        """Join at the end of its client's. None: full."""
        return None if self.is_full else self.rejoin(item, since_s=now_s, deadline_s=now_s + wait_max_s)

    def requeue(self, item: I, *, now_s: float, wait_max_s: float) -> Ticket[I]:
        """Join in front of its client's."""
        ticket = Ticket(item=item, since_s=now_s, deadline_s=now_s + wait_max_s)
        ticket.rank = float("-inf")
        self._join(ticket, goes_first=True)
        return ticket

    def _join(self, ticket: Ticket[I], *, goes_first: bool = False) -> None:
        super()._join(ticket, goes_first=goes_first)
        line = self._line_of(ticket.item)
        if goes_first:
            line.appendleft(ticket)
        else:
            line.append(ticket)
        self._count(ticket.item, 1)

    def heads(self, now_s: float) -> list[Ticket[I]]:
        """Return who is next of each tier, in the order of the tiers: where one cannot be served now, another may."""
        found = []
        for tier in self._tiers.in_order(now_s):
            ticket = self._next_of(tier, now_s)
            if ticket is not None:
                found.append(ticket)
        return found

    def peek_at(self, now_s: float) -> I | None:
        """Return who is next, leaving it there. None: nobody waits."""
        heads = self.heads(now_s)
        return heads[0].item if heads else None

    def take(self, ticket: Ticket[I]) -> None:
        """Let one of the heads leave, to be served."""
        if self.order is not None:
            _, oldest = first_of(self._line_of(ticket.item))
            if oldest is not None and oldest is not ticket:
                oldest.bypassed += 1
        self.cancel(ticket)

    def goes_before(self, tier: LaneTier, client: int, now_s: float) -> bool:
        """Whether one that arrives now goes before everybody who waits."""
        if not self.size:
            return True
        for other in self._tiers.in_order(now_s):
            if other is tier:
                return self._is_first_of(tier, client, now_s)
            if self._waiting(other):
                return False
        return False

    def _is_first_of(self, tier: LaneTier, client: int, now_s: float) -> bool:
        waiting = [key for key, line in self._lines.get(tier, {}).items() if any(t.waiting for t in line)]
        if client in waiting:
            return False
        own = tier.clients.share(client, now_s)
        return all(own < tier.clients.share(key, now_s) for key in waiting)

    def ahead_of(self, tier: LaneTier, client: int, now_s: float) -> int:
        """Return how many of its tier go before one that arrives now; what others take is in the tier's part of the rate."""
        found = 0
        own = tier.clients.of(client).waiting
        mine = tier.clients.share(client, now_s)
        for key in self._lines.get(tier, {}):
            waiting = tier.clients.of(key).waiting
            # Clients take turns, and who has had less goes first.
            turns = own + 1 if tier.clients.share(key, now_s) <= mine else own
            found += own if key == client else min(waiting, turns)
        return found

    def giving_way_to(self, tier: LaneTier, client: int) -> Ticket[I] | None:
        """Return who makes room in a full queue for one that arrives: the newest of whoever has too much of it. None: nobody.

        A lower tier does, down to its floor of the queue, the lowest first; for a tier under its own floor any other that
        is over its floor; then a client of the same tier that has more waiting.
        """
        is_short = self._waiting(tier) < tier.spec.floor * self.size_max
        for other in sorted(self._lines, key=lambda each: -each.rank):
            is_lower = other.rank > tier.rank or (is_short and other is not tier)
            if is_lower and self._waiting(other) > other.spec.floor * self.size_max:
                return self._newest_of(other)
        busiest = self._busiest_of(tier)
        if busiest is None or tier.clients.of(busiest).waiting <= tier.clients.of(client).waiting + 1:
            return None
        return self._newest_of(tier)

    def _newest_of(self, tier: LaneTier) -> Ticket[I] | None:
        """Return the newest of the client of a tier that has the most waiting."""
        busiest = self._busiest_of(tier)
        line = self._lines[tier].get(busiest, deque()) if busiest is not None else deque()
        return next((ticket for ticket in reversed(line) if ticket.waiting), None)

    def _busiest_of(self, tier: LaneTier) -> int | None:
        clients = self._lines.get(tier, {})
        return max(clients, key=lambda key: sum(t.waiting for t in clients[key]), default=None)

    def _next_of(self, tier: LaneTier, now_s: float) -> Ticket[I] | None:
        """Return who is next of a tier: of the clients that wait, whoever had the least lately."""
        clients = self._lines.get(tier)
        if not clients:
            return None
        best, least = None, (0.0, 0.0)
        for client, line in list(clients.items()):
            while line and not line[0].waiting:
                line.popleft()
            if not line:
                del clients[client]
                continue
            ticket = line[0] if self.order is None else first_of(line)[0]
            if ticket is None:
                continue
            key = (tier.clients.share(client, now_s), ticket.since_s)
            if best is None or key < least:
                best, least = ticket, key
        return best

    def _line_of(self, item: I) -> deque[Ticket[I]]:
        tier = item.tier or self._tiers.default
        return self._lines.setdefault(tier, {}).setdefault(item.client, deque())

    def _waiting(self, tier: LaneTier) -> int:
        return self._sizes.get(tier, 0)

    def _count(self, item: I, by: int) -> None:
        tier = item.tier or self._tiers.default
        self._sizes[tier] = self._sizes.get(tier, 0) + by
        tier.waiting += by
        tier.clients.of(item.client).waiting += by

    def _leave(self, ticket: Ticket[I]) -> None:
        super()._leave(ticket)
        self._count(ticket.item, -1)
        if not self.size:  # places that were left are dropped as others come to their front, or here
            self._lines.clear()

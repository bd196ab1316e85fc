"""The clients of one tier: how many tokens each had lately, and how many of its requests were retries."""

from __future__ import annotations

from typing import Final

from fleetctl.core.fairness.decayed import DecayedSum

# Of clients that compete: one that was idle makes up for no more than it would have had in about this time.
_TOKENS_MEMORY_S: Final = 3.0
_RETRIES_MEMORY_S: Final = 60.0
# Of so many clients a tier knows what each had; who comes after takes the place of whoever has been known for longest.
CLIENTS_MAX: Final = 4096
_COUNTED_EVERY_S: Final = 0.5
_ACTIVE_SHARE: Final = 0.01  # of a tier's tokens; who has less does not compete
# So far over an even share it is certain that a client has more than others, and not chance.
_EXCESS_AT: Final = 1.25
# Fewer requests say nothing of how many are retries.
_REQUESTS_MIN: Final = 5.0


class ClientShare:
    """One client's."""

    __slots__ = ("requests", "retries", "tokens", "waiting")

    def __init__(self) -> None:
        self.tokens = DecayedSum(_TOKENS_MEMORY_S)
        self.requests = DecayedSum(_RETRIES_MEMORY_S)
        self.retries = DecayedSum(_RETRIES_MEMORY_S)
        self.waiting = 0  # requests in the lane's queues

    def retry_share(self, now_s: float) -> float:
        """Return the share of its requests lately that were retries of refused ones."""
        requests = self.requests.at(now_s)
        return self.retries.at(now_s) / requests if requests >= _REQUESTS_MIN else 0.0


class ClientShares:
    """Every client's of one tier, bounded in number."""

    __slots__ = ("_clients", "_count", "_counted_s", "_total")

    def __init__(self) -> None:
        self._clients: dict[int, ClientShare] = {}
        self._total = DecayedSum(_TOKENS_MEMORY_S)
        self._count = 1
        self._counted_s = float("-inf")

    def __len__(self) -> int:
        return len(self._clients)

    def of(self, client: int) -> ClientShare:
        """Return a client's share, a new one's too."""
        found = self._clients.get(client)
        if found is None:
            if len(self._clients) >= CLIENTS_MAX:
                first = next((key for key, each in self._clients.items() if not each.waiting), None)
                del self._clients[next(iter(self._clients)) if first is None else first]
            found = self._clients[client] = ClientShare()
        return found

    def charge(self, client: int, tokens: float, now_s: float) -> None:
        """Count tokens that a client is served."""
        self.of(client).tokens.add(tokens, now_s)
        self._total.add(tokens, now_s)

    def share(self, client: int, now_s: float) -> float:
        """Return the share of the tier's tokens lately that a client had, 0-1."""
        total, found = self._total.at(now_s), self._clients.get(client)
        return min(1.0, found.tokens.at(now_s) / total) if total and found is not None else 0.0

    def excess(self, client: int, now_s: float) -> float:
        """Return how surely a client had more than an even share of the tier's tokens, 0 (it had less) to 1."""
        even = 1.0 / self._active(now_s)
        over = self.share(client, now_s) / even - 1.0
        return min(1.0, max(0.0, over / (_EXCESS_AT - 1.0)))

    def _active(self, now_s: float) -> int:
        """Return how many clients compete."""
        if now_s - self._counted_s >= _COUNTED_EVERY_S:
            self._counted_s = now_s
            least = _ACTIVE_SHARE * self._total.at(now_s)
            self._count = max(1, sum(each.tokens.at(now_s) > least for each in self._clients.values()))
            idle = [
                key
                for key, each in self._clients.items()
                if not each.waiting and each.requests.at(now_s) < 0.05 and each.tokens.at(now_s) < 1.0
            ]
            for key in idle:
                del self._clients[key]
        return self._count

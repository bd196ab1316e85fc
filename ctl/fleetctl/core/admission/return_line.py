"""When refused clients should come back: each has a place in a line that moves on as fast as the lane works.

Told by the queue alone all refused in a burst would hear the same second, return together, and be refused again. So every
refusal takes the next place. A place is worth as much of the lane's time as the share of places that is claimed: as for
airline slots, more are given out than there is room for, where many do not come back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

# OpenAI's clients obey no longer one; an earlier one than the shorter would cost more to refuse than it is worth.
RETURN_S_MAX: Final = 60.0
RETURN_S_MIN: Final = 0.1
# Who comes back before a slot is free waits in the queue: for this share of what it may. So slots are not idle in between.
_EARLY_SHARE: Final = 0.5
# A place whose time was so long ago has not been claimed.
_GRACE_S: Final = 10.0
# Each place that is claimed or expires moves the share by 5 %: about twenty are remembered.
_WEIGHT: Final = 0.05
_SHARE_MIN: Final = 0.05
# Of a lane that has finished nothing yet.
_RATE_RPS: Final = 10.0
_GOLDEN_RATIO: Final = 0.618034


@dataclass(slots=True)
class _Places:
    """A client's, as their time has not passed for long."""

    given: int = 0
    claimed: int = 0


class ReturnLine:
    """One lane's. Clients are known by an opaque key: one that has a place and sends a request claims it."""

    __slots__ = ("_clients", "_free_s", "_last_jitter", "_places", "_rate_rps", "claimed_share")

    def __init__(self) -> None:
        self._free_s = 0.0  # the next place
        self._rate_rps = _RATE_RPS
        self._last_jitter = 0.0
        self._places: deque[tuple[float, int]] = deque()  # when, and whose
        self._clients: dict[int, _Places] = {}
        self.claimed_share = 1.0  # of the places given lately

    def __len__(self) -> int:
        return len(self._places)

    def arrived(self, client: int) -> bool:
        """Note a request: it claims its client's next place, if it has one; return whether it has."""
        places = self._clients.get(client) if self._clients else None
        if places is None or places.claimed >= places.given:
            return False
        places.claimed += 1
        return True

    def place_s(
        self,
        client: int,
        now_s: float,
        *,
        queued: int,
        max_wait_s: float,
        rate_rps: float | None,
        not_before_s: float = 0.0,
    ) -> float:
        """Return in how many seconds a client that is refused now should come back, RETURN_S_MIN to RETURN_S_MAX.

        The queue goes first, and whoever was refused before; both move at `rate_rps`, None: as fast as they last did. A
        line that is longer than RETURN_S_MAX grows no more, and those at its end are spread over its second half.
        """
        self._rate_rps = rate_rps or self._rate_rps
        self._expire(now_s)
        spacing_s = max(_SHARE_MIN, self.claimed_share) / self._rate_rps
        first_s = max(RETURN_S_MIN, not_before_s, (queued + 1) / self._rate_rps - _EARLY_SHARE * max_wait_s)
        at_s = max(now_s + first_s, self._free_s)
        if at_s > now_s + RETURN_S_MAX:
            at_s = now_s + RETURN_S_MAX * (0.5 + 0.5 * self._jitter())
        else:
            self._free_s = at_s + spacing_s
            at_s = min(now_s + RETURN_S_MAX, at_s + spacing_s * self._jitter())
        self._places.append((at_s, client))
        self._clients.setdefault(client, _Places()).given += 1
        return min(RETURN_S_MAX, at_s - now_s)

    def _jitter(self) -> float:
        """Return the next of numbers that fill [0, 1) evenly, whatever their count."""
        self._last_jitter = (self._last_jitter + _GOLDEN_RATIO) % 1.0
        return self._last_jitter

    def _expire(self, now_s: float) -> None:
        places, until_s = self._places, now_s - _GRACE_S
        while places and places[0][0] < until_s:
            client = places.popleft()[1]
            of_client = self._clients[client]
            was_claimed = of_client.claimed > 0
            of_client.claimed -= was_claimed
            of_client.given -= 1
            if not of_client.given:
                del self._clients[client]
            self.claimed_share += _WEIGHT * (was_claimed - self.claimed_share)

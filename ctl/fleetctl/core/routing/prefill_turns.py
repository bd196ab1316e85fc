"""The order of an engine's line: by arrival, and at one that schedules by priority by rank, but for the prompt it has begun."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterator

    from fleetctl.core.routing.prefill_step import PrefillTurn


def stand(turns: deque[PrefillTurn], turn: PrefillTurn) -> None:
    """Put a prompt behind those it does not go before."""
    if not turns or turns[-1].rank <= turn.rank:
        turns.append(turn)
        return
    place = len(turns)
    while place > 1 and turns[place - 1].rank > turn.rank:
        place -= 1
    turns.insert(place, turn)


def computed_by(turns: deque[PrefillTurn], turn: PrefillTurn) -> Iterator[PrefillTurn]:
    """Take out a prompt that has been computed and all that certainly were before it; yield them in order.

    Of another rank it is certain only of those that go first and had come before.
    """
    kept: list[PrefillTurn] = []
    while turns:
        first = turns.popleft()
        if first.rank == turn.rank or first.is_gone or (first.rank < turn.rank and first.since_s < turn.since_s):
            yield first
        else:
            kept.append(first)
        if first is turn:
            break
    turns.extendleft(reversed(kept))


def ahead_s(turns: deque[PrefillTurn], rank: int | None, all_s: float, own_s: Callable[[float], float]) -> float:
    """Return how long one of this rank waits where all together take `all_s`: for the one begun, and who goes before it."""
    if rank is None or not turns or turns[-1].rank <= rank:
        return all_s
    before = (turn.tokens for n, turn in enumerate(turns) if not turn.is_gone and (not n or turn.rank <= rank))
    return min(all_s, math.fsum(own_s(tokens) for tokens in before))

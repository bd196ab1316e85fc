"""Which messages of a chat go, where its prompt is over the context cap."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_INSTRUCTING = frozenset({"system", "developer"})


def messages_to_keep(roles: Sequence[str], tokens: Sequence[int], cap: int) -> list[int] | None:
    """Return the places of the messages that stay, in order. None: not even the last turn fits, so nothing is cut.

    Whole turns go, oldest first: a turn is a user's message and all that follows until the next one, so that no answer
    of a tool is left without its call. What instructs the model stays, and so does the last turn.
    """
    turns = [place for place, role in enumerate(roles) if role == "user"]
    excess = sum(tokens) - cap
    going: set[int] = set()
    # What was said before the first user's message goes with the first turn.
    for start, end in zip([0, *turns[1:]], turns[1:], strict=False):
        if excess <= 0:
            break
        turn = {place for place in range(start, end) if roles[place] not in _INSTRUCTING}
        going |= turn
        excess -= sum(tokens[place] for place in turn)
    return [place for place in range(len(roles)) if place not in going] if excess <= 0 else None

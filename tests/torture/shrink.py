"""Makes a failing schedule smaller: faults are left out one by one for as long as the same rule is violated."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RUNS_MAX = 200


def shrunk(
    fails: Callable[[tuple[int, ...]], bool], kept: Sequence[int], *, runs_max: int = RUNS_MAX
) -> tuple[int, ...]:
    """Return a subset of `kept`, none of which can be left out, that still fails; fewer runs may leave it larger."""
    kept, runs = tuple(kept), 0
    has_shrunk = True
    while has_shrunk:
        has_shrunk = False
        for index in reversed(kept):
            fewer = tuple(each for each in kept if each != index)
            if runs >= runs_max:
                return kept
            runs += 1
            if fails(fewer):
                kept, has_shrunk = fewer, True
    return kept

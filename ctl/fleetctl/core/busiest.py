"""How busy a trace is at its busiest: what its speed is set by."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PEAK_WINDOW_S = 60.0
_PARTS = 10  # of a second


def busiest_rps(times_s: Sequence[float]) -> float:
    """Return the rate of the busiest minute of arrivals, which are in order, from zero on, and at least one.

    What is shorter than a minute is as busy as it is long; one instant counts as a second.
    """
    return _busiest(times_s) / min(PEAK_WINDOW_S, max(times_s[-1] - times_s[0], 1.0))


def _busiest(times_s: Sequence[float]) -> int:
    """Return the most arrivals of any minute that ends with one of them.

    Arrivals are counted by tenths of a second, of which a minute lies in 601 at most: only minutes that end in a tenth whose 601
    have more than the best so far are looked at, of half a million a few thousand.
    """
    counts = Counter([int(at * _PARTS) for at in times_s])
    parts = sorted(counts)
    until = [0, *accumulate(counts[part] for part in parts)]
    window = int(PEAK_WINDOW_S * _PARTS) + 1  # and one more for what is rounded
    most = [
        (until[place + 1] - until[bisect_left(parts, part - window)], until[place], until[place + 1])
        for place, part in enumerate(parts)
    ]
    best = 0
    for bound, first, end in sorted(most, reverse=True):
        if bound <= best:
            break
        begins = (bisect_right(times_s, times_s[number] - PEAK_WINDOW_S) for number in range(first, end))
        best = max(best, *(number + 1 - begin for number, begin in zip(range(first, end), begins, strict=True)))
    return best

"""The medians of all replicas but one, for each of them, sorted once."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class PeerValues:
    """One figure of each of several replicas. A median takes the logarithm of their number, a removal their number."""

    __slots__ = ("_sorted",)

    def __init__(self, values: Iterable[float]) -> None:
        self._sorted = sorted(values)

    def median_beside(self, own: float | None, *, least: int = 1) -> float | None:
        """Return the median without one of the values, `own`; None: fewer than `least` are left.

        `own` None: the replica has none among them, and all count. Raises ValueError for one that is not among them.
        """
        values = self._sorted
        place = len(values) if own is None else self._place(own)
        count = len(values) - (own is not None)
        if count < max(1, least):
            return None
        upper = self._beside(count // 2, place)
        return upper if count % 2 else (self._beside(count // 2 - 1, place) + upper) / 2

    def remove(self, value: float) -> None:
        """Take one of the values away. Raises ValueError for one that is not among them."""
        del self._sorted[self._place(value)]

    def _place(self, value: float) -> int:
        place = bisect_left(self._sorted, value)
        if place == len(self._sorted) or self._sorted[place] != value:
            raise ValueError(f"{value} is not among the {len(self._sorted)} values")
        return place

    def _beside(self, rank: int, place: int) -> float:
        """Return the value of a rank among all but the one at a place."""
        return self._sorted[rank if rank < place else rank + 1]

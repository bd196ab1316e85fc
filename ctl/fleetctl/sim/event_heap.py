"""Virtual time: a heap of calls that are due."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ScheduledCall:
    """A call on the heap."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Make sure that the call is not made."""
        self.call = None


class EventHeap:
    """Makes calls in order of time; those due at the same time in the order they were asked for."""

    __slots__ = ("_heap", "_order", "now_s")

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, ScheduledCall]] = []
        self._order = count().__next__

    def clock(self) -> float:
        """Return the virtual time, in seconds since the start."""
        return self.now_s

    def at(self, at_s: float, call: Callable[[], None]) -> ScheduledCall:
        """Make a call at `at_s`, which must not lie in the past."""
        due = ScheduledCall(call)
        heapq.heappush(self._heap, (at_s, self._order(), due))
        return due

    def run(self, until_s: float) -> None:
        """Make every call that is due up to and at `until_s`."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until_s:
            at_s, _, due = pop(heap)
            if due.call is not None:
                self.now_s = at_s
                due.call()
        self.now_s = max(self.now_s, until_s)

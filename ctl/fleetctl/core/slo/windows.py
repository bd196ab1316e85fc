"""Sliding windows over anything that merges: rings of sub-windows, written in O(1)."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Length -> sub-window, seconds; shortest first, each sub-window so many of the one before. A window reaches back its
# length, to within one sub-window.
SUB_WINDOW_S = {10.0: 0.5, 60.0: 2.0, 300.0: 10.0, 3600.0: 60.0}
WINDOWS_S = tuple(SUB_WINDOW_S)


class Mergeable(Protocol):
    """Sums up; a new one is empty."""

    def merge(self, other: Self) -> None:
        """Add everything `other` holds."""
        ...

    def remove(self, gone: Sequence[Self], rest: Sequence[Self]) -> None:
        """Take out what `gone` had added; `rest` is all else that was merged into this one."""
        ...


M = TypeVar("M", bound=Mergeable)


class _Ring(Generic[M]):
    """One window's sub-windows that are over, and their sum. Those without traffic are not kept, so a gap costs nothing.

    The sum is brought up to date when it is asked for, by what has come and gone since: merging sixty of them anew for
    every snapshot took 1.8 ms a lane, and one that came and went between two snapshots need not be merged. A sub-window
    that goes on is put together from those of the next shorter window as they end, and not yet in the sum: each value is
    merged some three times on its way, where handing every half second to every window merged it nine times.
    """

    __slots__ = (
        "_cells",
        "_gone",
        "_make",
        "_part",
        "_part_index",
        "_pending",
        "_span",
        "_whole",
        "_width_s",
        "longer",
    )

    def __init__(self, make: Callable[[], M], *, width_s: float, length_s: float) -> None:
        self._make = make
        self._width_s = width_s
        self._span = round(length_s / width_s)
        self._cells: deque[tuple[int, M]] = deque()
        self._whole = make()
        self._pending = 0  # the latest cells, so many, are not in the sum yet
        self._gone: list[M] = []  # are in the sum still
        self._part: M | None = None  # the sub-window that goes on, so far
        self._part_index = 0
        self.longer: _Ring[M] | None = None  # what ends here goes on to

    def absorb(self, cell: M, at_s: float) -> None:
        """Add a part of a sub-window that is over."""
        index = int(at_s // self._width_s)
        if self._part is not None and self._part_index != index:
            self._end_part(self._part)
        if self._part is None:
            self._part, self._part_index = self._make(), index
        self._part.merge(cell)

    def take(self, cell: M, at_s: float) -> None:
        """Add a whole sub-window that is over; it is the ring's from now on."""
        index = int(at_s // self._width_s)
        self._forget(index)
        self._cells.append((index, cell))
        self._pending += 1
        if self.longer is not None:
            self.longer.absorb(cell, at_s)

    def amend(self, change: M, at_s: float) -> bool:
        """Add a change to what was added at `at_s`, if it is still held; return whether longer windows will hear of it."""
        index = int(at_s // self._width_s)
        if self._part is not None and self._part_index == index:
            self._part.merge(change)
            return True
        for number, (each, cell) in enumerate(reversed(self._cells)):
            if each == index:
                cell.merge(change)
                if number >= self._pending:
                    self._whole.merge(change)
                break
        return False

    def add_part(self, recent: M, now_s: float) -> None:
        """Add the sub-window that goes on, if there is one, to what the shorter windows have not passed on yet."""
        part = self._part
        if part is not None and self._part_index != int(now_s // self._width_s):
            self._end_part(part)
        elif part is not None:
            recent.merge(part)

    def total(self, now_s: float) -> M:
        """Return the sum of what is over, which is not to be changed."""
        self._forget(int(now_s // self._width_s))
        cells = self._cells
        if self._pending == len(cells):
            self._whole, self._gone = self._make(), []
        for number in range(len(cells) - self._pending, len(cells)):
            self._whole.merge(cells[number][1])
        self._pending = 0
        if self._gone:
            self._whole.remove(self._gone, [cell for _, cell in cells])
            self._gone = []
        return self._whole

    def _end_part(self, part: M) -> None:
        self._part = None
        self.take(part, self._part_index * self._width_s)

    def _forget(self, index: int) -> None:
        cells = self._cells
        while cells and cells[0][0] <= index - self._span:
            cell = cells.popleft()[1]
            if len(cells) < self._pending:
                self._pending -= 1
            else:
                self._gone.append(cell)


class SlidingWindows(Generic[M]):
    """The last 10 s, 1 m, 5 m and 1 h of something, beside everything since the start.

    `now_s` is any clock that does not go back. Writers add to `open_cell(now_s)`; a cell is passed on to the rings when
    its half second is over, so writing costs the same whatever the windows are.
    """

    __slots__ = ("_cell", "_cell_ends_s", "_cell_starts_s", "_lifetime", "_make", "_rings", "_shortest", "_touched")

    def __init__(self, make: Callable[[], M], *, now_s: float) -> None:
        self._make = make
        self._rings = {length_s: _Ring(make, width_s=w, length_s=length_s) for length_s, w in SUB_WINDOW_S.items()}
        for shorter, longer in pairwise(self._rings.values()):
            shorter.longer = longer
        self._shortest = self._rings[WINDOWS_S[0]]
        self._lifetime = make()
        self._cell = make()
        self._touched = False
        self._start(now_s)

    def open_cell(self, now_s: float) -> M:
        """Return what to add to now; not to be kept."""
        if now_s >= self._cell_ends_s:
            self._close(now_s)
        self._touched = True
        return self._cell

    def amend(self, change: M, at_s: float) -> None:
        """Add `change`, which may be negative, to what was added at `at_s`; windows that have forgotten it stay."""
        if at_s >= self._cell_starts_s:
            self._cell.merge(change)
            self._touched = True
            return
        self._lifetime.merge(change)
        for ring in self._rings.values():
            if ring.amend(change, at_s):
                break

    def over(self, seconds: float, now_s: float) -> M:
        """Return the sum over the window of this length. Raises KeyError for a length that is not kept."""
        over, recent = self.parts_over(seconds, now_s)
        whole = self._make()
        whole.merge(over)
        whole.merge(recent)
        return whole

    def parts_over(self, seconds: float, now_s: float) -> tuple[M, M]:
        """Return the two parts of the sum over one window, as `parts` has them; others are left as they are until somebody asks.

        Raises KeyError for a length that is not kept.
        """
        last, recent = self._rings[seconds], self._recent(now_s)
        for ring in self._rings.values():
            ring.add_part(recent, now_s)
            if ring is last:
                break
        return last.total(now_s), recent

    def sums(self, now_s: float) -> Iterator[tuple[float, M]]:
        """Yield every window's length and sum, the shortest first."""
        for seconds, over, recent in self.parts(now_s):
            whole = self._make()
            whole.merge(over)
            whole.merge(recent)
            yield seconds, whole

    def parts(self, now_s: float) -> Iterator[tuple[float, M, M]]:
        """Yield every window's length and the two parts of its sum, the shortest first: what is over, and what is not.

        Neither is to be changed, and both are to be read before the next is asked for: to add them up takes as long as
        to read them.
        """
        recent = self._recent(now_s)
        for seconds, ring in self._rings.items():
            ring.add_part(recent, now_s)
            yield seconds, ring.total(now_s), recent

    def _recent(self, now_s: float) -> M:
        """Return what the shortest window has not passed on yet, to be added to."""
        if now_s >= self._cell_ends_s:
            self._close(now_s)
        recent = self._make()
        recent.merge(self._cell)
        return recent

    def lifetime(self) -> M:
        """Return the sum of everything ever added."""
        whole = self._make()
        whole.merge(self._lifetime)
        whole.merge(self._cell)
        return whole

    def _start(self, now_s: float) -> None:
        width_s = min(SUB_WINDOW_S.values())
        self._cell_starts_s = now_s // width_s * width_s
        self._cell_ends_s = self._cell_starts_s + width_s

    def _close(self, now_s: float) -> None:
        if self._touched:
            self._shortest.take(self._cell, self._cell_starts_s)
            self._lifetime.merge(self._cell)
            self._cell = self._make()
            self._touched = False
        self._start(now_s)

"""A mergeable quantile sketch: logarithmic buckets, 1 % relative error, bounded memory."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec

from fleetctl.model.slo import Quantiles

if TYPE_CHECKING:
    from collections.abc import Iterable

RELATIVE_ERROR = 0.01
# DDSketch (Masson, Rim, Lee; VLDB 2019): bucket i holds (gamma^(i-1), gamma^i], so its middle is off by at most 1 %.
_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_PER_LOG = 1 / math.log(_GAMMA)
# One microsecond to about twelve days: 1,382 buckets at most, whatever is added.
SMALLEST_S = 1e-6
LARGEST_S = 1e6
_INDEX_MIN = math.ceil(math.log(SMALLEST_S) * _PER_LOG)
_INDEX_MAX = math.ceil(math.log(LARGEST_S) * _PER_LOG)

_MIDDLE = (1.0 + _GAMMA) / 2.0  # a bucket's upper end over its middle
# Of every bucket there can be: a snapshot asks for two hundred of them.
_MIDDLES_S = [math.exp(index / _PER_LOG) / _MIDDLE for index in range(_INDEX_MIN, _INDEX_MAX + 1)]
_NO_VALUES = Quantiles()
_UNORDERED_MAX = 8  # sorting finds so few their places in no time
_SHOWN = (0.5, 0.95, 0.99)
_ROUNDING = 1e-9  # 0.95 * 20 is a little more than 19 in binary

_log, _ceil, _INFINITY = math.log, math.ceil, math.inf


class SketchCounts(msgspec.Struct, frozen=True):
    """A sketch on its way to where it is merged with others."""

    buckets: dict[int, int]
    sum_s: float
    min_s: float
    max_s: float


class QuantileSketch:
    """Counts durations in seconds; any quantile is within 1 % of the true one, between 1 us and 12 days.

    Values outside that range count at its edges. Merging is exact: the merged sketch is the one that would have been
    made from all values at once, in whichever order.
    """

    __slots__ = ("_buckets", "_in_order", "count", "max_s", "min_s", "sum_s")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._in_order = 0  # of the buckets so many come first, in ascending order
        self.count = 0
        self.sum_s = 0.0
        self.min_s = 0.0
        self.max_s = 0.0

    def add(self, value_s: float, count: int = 1) -> None:
        """Count `value_s` `count` times. Raises ValueError on a negative, NaN or infinite one."""
        if not 0.0 <= value_s < _INFINITY or count < 1:
            raise ValueError(f"cannot count {value_s!r} s {count} times")
        if value_s <= SMALLEST_S:
            index = _INDEX_MIN
        elif value_s >= LARGEST_S:
            index = _INDEX_MAX
        else:
            index = _ceil(_log(value_s) * _PER_LOG)
        buckets = self._buckets
        buckets[index] = buckets.get(index, 0) + count
        if not self.count or value_s < self.min_s:
            self.min_s = value_s
        if value_s > self.max_s:  # noqa: PLR1730  # a call costs more than all the rest here
            self.max_s = value_s
        self.count += count
        self.sum_s += value_s * count

    def counts(self) -> SketchCounts:
        """Return what it has counted, to be made a sketch of elsewhere."""
        return SketchCounts(dict(self._buckets), self.sum_s, self.min_s, self.max_s)

    @classmethod
    def of(cls, counts: SketchCounts) -> QuantileSketch:
        """Return the sketch that these counts were taken of."""
        found = cls()
        found._buckets = dict(counts.buckets)
        found.count = sum(counts.buckets.values())
        found.sum_s, found.min_s, found.max_s = counts.sum_s, counts.min_s, counts.max_s
        return found

    def merge(self, other: QuantileSketch) -> None:
        """Add everything `other` counted."""
        if not other.count:
            return
        if not self.count:
            self._buckets = other._buckets.copy()  # a tenth of what adding bucket by bucket costs
            self._in_order = other._in_order
            self.count, self.sum_s, self.min_s, self.max_s = other.count, other.sum_s, other.min_s, other.max_s
            return
        self.min_s = min(self.min_s, other.min_s)
        self.max_s = max(self.max_s, other.max_s)
        self.count += other.count
        self.sum_s += other.sum_s
        more = other._buckets
        if len(more) > len(self._buckets):  # the fewer are added one by one
            more, self._buckets, self._in_order = self._buckets, more.copy(), other._in_order
        buckets = self._buckets
        for index, count in more.items():
            buckets[index] = buckets.get(index, 0) + count

    def remove(self, gone: Iterable[QuantileSketch], rest: Iterable[QuantileSketch]) -> None:
        """Take out what `gone` had added; `rest` is all else that was merged into this one.

        The result is the one that merging `rest` alone would give, but for the rounding of `sum_s`.
        """
        buckets, had_ends = self._buckets, False
        for each in gone:
            if not each.count:
                continue
            self.count -= each.count
            self.sum_s -= each.sum_s
            had_ends = had_ends or each.min_s <= self.min_s or each.max_s >= self.max_s
            for index, count in each._buckets.items():  # noqa: SLF001  # a sketch's own
                left = buckets[index] - count
                if left:
                    buckets[index] = left
                else:
                    del buckets[index]
                    self._in_order -= 1
        if had_ends:
            filled = [each for each in rest if each.count]
            self.sum_s = sum([each.sum_s for each in filled])
            self.min_s = min([each.min_s for each in filled], default=0.0)
            self.max_s = max([each.max_s for each in filled], default=0.0)

    def quantile(self, q: float) -> float:
        """Return the value at quantile `q` in [0, 1], seconds. Raises ValueError when empty: there is no figure."""
        return SketchReading(self).quantile(q)

    def quantiles(self, qs: Iterable[float]) -> list[float]:
        """Return the values at several quantiles in one pass. Raises ValueError when empty."""
        reading = SketchReading(self)
        return [reading.quantile(q) for q in qs]

    def count_at_most(self, limit_s: float) -> int:
        """Return how many values were at or under `limit_s`, to within the relative error of the limit."""
        return SketchReading(self).count_at_most(limit_s)

    def summary(self) -> Quantiles:
        """Return the percentiles everything else shows; all zero with `count` 0 when empty."""
        return SketchReading(self).summary()

    def _sorted(self) -> dict[int, int]:
        """Return the buckets, nearly in ascending order.

        What is over is read again every second, while few of its buckets are new: sorting them is half of a reading.
        """
        if len(self._buckets) - self._in_order > _UNORDERED_MAX:
            self._buckets = {index: self._buckets[index] for index in sorted(self._buckets)}
            self._in_order = len(self._buckets)
        return self._buckets

    def in_order(self, more: QuantileSketch | None = None) -> tuple[list[int], list[int]]:
        """Return the indexes of the buckets in ascending order, and how many values are in each and those before it.

        `more`: what another sketch has counted is among them.
        """
        buckets = self._sorted()
        if more is not None:
            fewer = more._buckets  # noqa: SLF001  # a sketch's own
            if len(fewer) > len(buckets):
                buckets, fewer = more._sorted(), buckets  # noqa: SLF001  # as above
            buckets = buckets.copy()
            for index, count in fewer.items():
                buckets[index] = buckets.get(index, 0) + count
        indexes = sorted(buckets)
        return indexes, list(accumulate(map(buckets.__getitem__, indexes)))


class SketchReading:
    """A sketch, or two as if they were merged, put in order once to be asked several things; it shows what was counted when it was made."""

    __slots__ = ("_indexes", "_max_s", "_min_s", "_seen", "count")

    def __init__(self, sketch: QuantileSketch, more: QuantileSketch | None = None, *, without_zeros: int = 0) -> None:
        """`without_zeros`: of the values of 0 so many are left out."""
        if more is None or not more.count:
            self._min_s, self._max_s, self.count = sketch.min_s, sketch.max_s, sketch.count
            self._indexes, self._seen = sketch.in_order() if sketch.count else ([], [])
        elif not sketch.count:
            self._min_s, self._max_s, self.count = more.min_s, more.max_s, more.count
            self._indexes, self._seen = more.in_order()
        else:
            self._min_s, self._max_s = min(sketch.min_s, more.min_s), max(sketch.max_s, more.max_s)
            self.count = sketch.count + more.count
            self._indexes, self._seen = sketch.in_order(more)
        if without_zeros:
            self.count -= without_zeros
            self._seen = [seen - without_zeros for seen in self._seen]

    def quantile(self, q: float) -> float:
        """Return the value at quantile `q` in [0, 1], seconds. Raises ValueError when empty: there is no figure."""
        if not self.count or not 0.0 <= q <= 1.0:
            raise ValueError(f"no quantiles {q} of {self.count} values")
        # The nearest rank: the value that q of all are at or under, so the P99 of few is the longest of them.
        found = _MIDDLES_S[self._indexes[bisect_left(self._seen, q * self.count - _ROUNDING)] - _INDEX_MIN]
        return min(max(found, self._min_s), self._max_s)

    def count_at_most(self, limit_s: float) -> int:
        """Return how many values were at or under `limit_s`, to within the relative error of the limit."""
        if limit_s >= self._max_s:
            return self.count
        if limit_s < self._min_s:
            return 0
        buckets = bisect_right(self._indexes, math.floor(_log(limit_s * _MIDDLE) * _PER_LOG))
        return self._seen[buckets - 1] if buckets else 0

    def summary(self) -> Quantiles:
        """Return the percentiles everything else shows; all zero with `count` 0 when empty."""
        count = self.count
        if not count:
            return _NO_VALUES
        indexes, seen, least_s, most_s = self._indexes, self._seen, self._min_s, self._max_s
        # As `quantile`, without `min` and `max`: a snapshot of three lanes asks for two hundred of them.
        middles_s = [_MIDDLES_S[indexes[bisect_left(seen, q * count - _ROUNDING)] - _INDEX_MIN] for q in _SHOWN]
        p50_s, p95_s, p99_s = [
            most_s if middle_s > most_s else least_s if middle_s < least_s else middle_s  # noqa: FURB136
            for middle_s in middles_s
        ]
        return Quantiles(count=count, p50_s=p50_s, p95_s=p95_s, p99_s=p99_s, max_s=most_s)

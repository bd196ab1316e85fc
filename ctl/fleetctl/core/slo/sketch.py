"""A mergeable quantile sketch: logarithmic buckets, 1 % relative error, bounded memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

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
_ROUNDING = 1e-9  # 0.95 * 20 is a little more than 19 in binary

_log, _ceil, _INFINITY = math.log, math.ceil, math.inf


class QuantileSketch:
    """Counts durations in seconds; any quantile is within 1 % of the true one, between 1 us and 12 days.

    Values outside that range count at its edges. Merging is exact: the merged sketch is the one that would have been
    made from all values at once, in whichever order.
    """

    __slots__ = ("_buckets", "count", "max_s", "min_s", "sum_s")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
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

    def merge(self, other: QuantileSketch) -> None:
        """Add everything `other` counted."""
        if not other.count:
            return
        self.min_s = min(self.min_s, other.min_s) if self.count else other.min_s
        self.max_s = max(self.max_s, other.max_s)
        self.count += other.count
        self.sum_s += other.sum_s
        buckets = self._buckets
        for index, count in other._buckets.items():
            buckets[index] = buckets.get(index, 0) + count

    def quantile(self, q: float) -> float:
        """Return the value at quantile `q` in [0, 1], seconds. Raises ValueError when empty: there is no figure."""
        return self.quantiles((q,))[0]

    def quantiles(self, qs: Iterable[float]) -> list[float]:
        """Return the values at several ascending quantiles in one pass. Raises ValueError when empty."""
        wanted = list(qs)
        if not self.count or any(not 0.0 <= q <= 1.0 for q in wanted) or wanted != sorted(wanted):
            raise ValueError(f"no quantiles {wanted} of {self.count} values")
        found: list[float] = []
        items = iter(sorted(self._buckets.items()))
        index, seen = next(items)
        for q in wanted:
            # The nearest rank: the value that q of all are at or under, so the P99 of few is the longest of them.
            rank = q * self.count - _ROUNDING
            while seen < rank:
                index, count = next(items)
                seen += count
            found.append(min(max(_middle(index), self.min_s), self.max_s))
        return found

    def count_at_most(self, limit_s: float) -> int:
        """Return how many values were at or under `limit_s`, to within the relative error of the limit."""
        if limit_s >= self.max_s:
            return self.count
        if limit_s < self.min_s:
            return 0
        last = math.floor(_log(limit_s * _MIDDLE) * _PER_LOG)
        return sum(count for index, count in self._buckets.items() if index <= last)

    def summary(self) -> Quantiles:
        """Return the percentiles everything else shows; all zero with `count` 0 when empty."""
        if not self.count:
            return Quantiles()
        p50, p95, p99 = self.quantiles((0.5, 0.95, 0.99))
        return Quantiles(count=self.count, p50_s=p50, p95_s=p95, p99_s=p99, max_s=self.max_s)


def _middle(index: int) -> float:
    return math.exp(index / _PER_LOG) / _MIDDLE

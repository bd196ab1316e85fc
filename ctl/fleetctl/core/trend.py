"""Where the load is going: how much there will be when a replica that is ordered now serves, and how unevenly it comes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from fleetctl.model.arrivals import ArrivalHistory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

BIN_S = 10.0  # the shortest window that the gateway keeps
# A reading that is later than so many bins leaves a gap, and nothing is said across one.
_GAP_BINS = 1.5
_BINS_MAX = 60
_MEAN_BINS = 6  # a minute
# Of five minutes: fewer bins say nothing of how unevenly requests come.
_DISPERSION_BINS, _DISPERSION_BINS_MIN = 30, 12
_TREND_BINS_MIN = 8
# Standard deviations by which a slope must differ from none: looked at every second, and an order costs a boot.
_SURE_DEVIATIONS = 3.0
# Variances by which a line has to explain more than a step: of steps by a third to twice the load one in five looks like a
# line at some look, and twice too many are ordered for it. By one variance it is one in ten, and ramps are seen as soon.
_OVER_STEP = 1.0
_MAYBE_DEVIATIONS = 1.5  # of steady load one look in fifteen sees a rise that is none
# A history grows every ten seconds and is read some twenty times a second, by each lane; of more lanes some are read anew.
_KNOWN = 256
_ROOT_VARIANCE = 0.25  # of the square root of a Poisson count, whatever its mean


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyGrowth:
    """A load that has risen steadily for as long as a replica takes to start."""

    rps: float  # now
    ahead_rps: float  # once as much time has passed again


def note_arrivals(history: ArrivalHistory, offered: int, now: datetime) -> ArrivalHistory:
    """Return the history with the requests of the last `BIN_S` seconds, if so long has passed since it was last added to."""
    if history.until is None:
        return ArrivalHistory(counts=(offered,), until=now)
    since_s = (now - history.until).total_seconds()
    if 0.0 <= since_s < BIN_S:
        return history
    if not 0.0 <= since_s <= _GAP_BINS * BIN_S:
        return ArrivalHistory(counts=(offered,), until=now)
    return replace(history, counts=(*history.counts, offered)[-_BINS_MAX:], until=now)


def mean_rps(history: ArrivalHistory) -> float:
    """Return the rate of the last minute, whether it is surely another one by now or not; 0 where it is not known."""
    counts = history.counts[-_MEAN_BINS:]
    return sum(counts) / (BIN_S * _MEAN_BINS) if len(counts) == _MEAN_BINS else 0.0


@lru_cache(maxsize=_KNOWN)
def trend(history: ArrivalHistory, *, boot_s: float) -> SteadyGrowth | None:
    """Return how the load has grown in a boot's time. None: it has not, or it may be chance, or it came at once.

    By the square roots of the counts: their noise is the same at every level, and the swell after a trough lies on a line.
    """
    wanted = min(_BINS_MAX, max(_TREND_BINS_MIN, round(boot_s / BIN_S)))
    roots = [math.sqrt(count) for count in history.counts[-wanted:]]
    number = len(roots)
    if number < _TREND_BINS_MIN:
        return None
    variance = _ROOT_VARIANCE * dispersion(history)
    slope = _slope(roots)
    by_line = slope**2 * _squared_offsets(number)
    if slope <= 0.0 or by_line <= _SURE_DEVIATIONS**2 * variance or _by_step(roots) + _OVER_STEP * variance > by_line:
        return None
    now = sum(roots) / number + slope * number / 2.0
    return SteadyGrowth(rps=now**2 / BIN_S, ahead_rps=(now + slope * boot_s / BIN_S) ** 2 / BIN_S)


@lru_cache(maxsize=_KNOWN)
def may_rise(history: ArrivalHistory) -> bool:
    """Whether the load has rather risen than not for more than a minute: no ground to order by, but none to give up by either."""
    roots = [math.sqrt(count) for count in history.counts[-_TREND_BINS_MIN:]]
    if len(roots) < _TREND_BINS_MIN:
        return False
    slope, variance = _slope(roots), _ROOT_VARIANCE * dispersion(history)
    return slope > 0.0 and slope**2 * _squared_offsets(len(roots)) > _MAYBE_DEVIATIONS**2 * variance


def _slope(values: Sequence[float]) -> float:
    """Return what each value is more than the one before it, by least squares."""
    middle = (len(values) - 1) / 2.0
    return sum((at - middle) * value for at, value in enumerate(values)) / _squared_offsets(len(values))


def _squared_offsets(number: int) -> float:
    """Return the sum of squared distances of so many values in a row from their middle."""
    return number * (number**2 - 1) / 12.0


def _by_step(values: Sequence[float]) -> float:
    """Return how much of the values' squared deviations one step from one level to another explains, at its best place."""
    number, mean = len(values), sum(values) / len(values)
    most, below = 0.0, 0.0
    for at, value in enumerate(values[:-1], start=1):
        below += value
        most = max(most, (below - at * mean) ** 2 * number / (at * (number - at)))
    return most


@lru_cache(maxsize=_KNOWN)
def dispersion(history: ArrivalHistory) -> float:
    """Return the variance of the counts over their mean, the least that it surely is; 1 for Poisson arrivals, or where it is not known.

    From the differences of neighbours, which a trend hardly moves; the largest is left out, for a step in the load is none.
    """
    counts = history.counts[-_DISPERSION_BINS:]
    if len(counts) < _DISPERSION_BINS_MIN:
        return 1.0
    mean = sum(counts) / len(counts)
    squares = sorted((b - a) ** 2 for a, b in pairwise(counts))[:-1]
    if not mean:
        return 1.0
    measured = sum(squares) / (2.0 * len(squares) * mean)
    # Two standard errors of the variance of as many normal differences of neighbours.
    return max(1.0, measured / (1.0 + 2.0 * math.sqrt(3.0 / len(squares))))

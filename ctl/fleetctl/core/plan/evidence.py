"""What simulated requests show of a lane: its tail and its share of good ones, each with the interval they leave."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERVAL = 0.9  # of stretches as long as what was simulated lie inside
_Z = NormalDist().inv_cdf((1 + INTERVAL) / 2)
BLOCK_S = 10.0  # late requests come together: how many there are of such a stretch tells how much
_BLOCKS_MIN = 8
_TAIL = 0.1  # the part of all values that an exponential is laid through


@dataclass(frozen=True, slots=True, kw_only=True)
class TailEstimate:
    """A percentile of what was simulated, and the interval around it."""

    point_s: float
    low_s: float
    high_s: float


def tail_estimate(samples: Sequence[tuple[float, float]], fraction: float) -> TailEstimate | None:
    """Return a quantile of (instant, value) and where that of another stretch as long lies nine times in ten.

    Order statistics: the count of values above the quantile is Poisson, its variance as many times larger as that of the
    counts of BLOCK_S shows, and twice that, as the other stretch has its own chance. None: there are no samples.
    """
    if not samples:
        return None
    values = sorted(value for _, value in samples)
    count, above = len(values), (1.0 - fraction) * len(values)
    point_s = _quantile(values, above)
    spread = _Z * math.sqrt(2.0 * max(above, 1.0) * clumping([at for at, value in samples if value > point_s], samples))
    return TailEstimate(
        point_s=point_s,
        low_s=_quantile(values, min(float(count), above + spread)),
        high_s=_quantile(values, max(above * 0.05, above - spread)),
    )


def clumping(late_s: Sequence[float], samples: Sequence[tuple[float, float]]) -> float:
    """Return how much more the counts of late ones in BLOCK_S vary than Poisson's; at least 1."""
    blocks = {int(at // BLOCK_S) for at, _ in samples}
    if len(blocks) < _BLOCKS_MIN or len(late_s) < 2:  # one has nobody to come with
        return 1.0
    counts = dict.fromkeys(blocks, 0)
    for at in late_s:
        counts[int(at // BLOCK_S)] += 1
    mean = len(late_s) / len(blocks)
    return max(1.0, sum((each - mean) ** 2 for each in counts.values()) / (len(blocks) - 1) / mean)


def missed_upper(missed: int, clumps: float = 0.5) -> float:
    """Return the most misses that another stretch as long has, nineteen times in twenty, coming together as `clumps` says.

    The normal bound of a Poisson count on its square root, where its variance is even (Anscombe 1948), and the part of
    the difference of two such counts. A half, the default, leaves the one count's own: of a load that is the whole of
    what is to be carried, or the worst of it.
    """
    return (math.sqrt(missed + 3 / 8) + _Z * math.sqrt(clumps / 2.0)) ** 2 - 3 / 8 if missed else 0.0


def _quantile(ascending: Sequence[float], above: float) -> float:
    """Return the value that so many are above; beyond the largest, by the exponential that the upper tenth makes."""
    count = len(ascending)
    if above >= 1.0:
        return ascending[min(count - 1, max(0, math.ceil(count - above) - 1))]
    tail = ascending[math.floor(count * (1 - _TAIL)) :]
    mean_excess = math.fsum(value - tail[0] for value in tail) / len(tail)
    return max(ascending[-1], tail[0] + mean_excess * math.log(len(tail) / max(above, 1e-9)))

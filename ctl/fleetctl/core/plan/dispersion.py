"""How bursty arrivals are: the index of dispersion of their counts."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.profile import WorkloadSpec

UNKNOWN_DISPERSION = 2.0  # planned with where a profile does not say: twice Poisson's
_COUNTS_MIN = 10


def is_burst_known(workload: WorkloadSpec) -> bool:
    """Whether a profile says how bursty arrivals are, in one way or another; a trace shows it."""
    return bool(workload.trace) or not workload.burst_cv is workload.dispersion_1s is workload.dispersion_10s is None


def index_of_dispersion(stretches: Sequence[tuple[float, float, Sequence[float]]], window_s: float) -> float | None:
    """Return the variance of the counts of arrivals in windows of this length over their mean; 1 is Poisson.

    A stretch is (start, end, arrivals) in seconds; windows lie side by side from its start, and vary around the stretch's
    own mean. None: under ten windows, or under ten arrivals. (Cox and Lewis, The Statistical Analysis of Series of
    Events, 1966.)
    """
    counted, squares, total = 0, 0.0, 0
    free = 0
    for start_s, end_s, arrivals in stretches:
        windows = math.floor((end_s - start_s) / window_s + 1e-9)
        found = Counter(int((at_s - start_s) // window_s) for at_s in arrivals)
        counts = [found[number] for number in range(windows)]
        if not counts:
            continue
        mean = sum(counts) / windows
        squares += math.fsum((count - mean) ** 2 for count in counts)
        counted, total, free = counted + windows, total + sum(counts), free + windows - 1
    if counted < _COUNTS_MIN or total < _COUNTS_MIN or not free:
        return None
    return squares / free / (total / counted)

"""How bursty arrivals are: the index of dispersion of their counts, as planned, as simulated and as measured."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING

from fleetctl.model.traffic import ArrivalBurst, Dispersion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.profile import WorkloadSpec

UNKNOWN_DISPERSION = 2.0  # planned with where a profile does not say: twice Poisson's
_COUNTS_MIN = 10
RECENT_S = 300  # of a gateway's counts: thirty tens of seconds
_REFRESH_S = 5
_LONG = 10  # seconds of the longer windows
_SURE_Z = 2.326  # of the standard normal distribution: 99 %


class ArrivalCounts:
    """How many requests were offered in each second of a run: four bytes a second, whatever the rate."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = array("I")

    def add(self, at_s: float) -> None:
        """Count a request that was due this many seconds after the start; the order does not matter."""
        second = int(at_s)
        counts = self._counts
        if second >= len(counts):
            counts.extend([0] * (second + 1 - len(counts)))
        counts[second] += 1

    def merge(self, other: ArrivalCounts) -> None:
        """Add everything other counts of the same run hold."""
        missing = len(other._counts) - len(self._counts)
        self._counts.extend([0] * max(0, missing))
        for second, count in enumerate(other._counts):
            self._counts[second] += count

    def burst(self, duration_s: float, planned: Dispersion | None = None) -> ArrivalBurst:
        """Return how bursty the requests of the first `duration_s` were, beside what was planned for."""
        seconds = math.floor(duration_s + 1e-9)
        counts = [*self._counts[:seconds], *[0] * max(0, seconds - len(self._counts))]
        of_ten = [sum(counts[at : at + _LONG]) for at in range(0, seconds - _LONG + 1, _LONG)]
        measured = Dispersion(over_1s=_index_of_counts([counts]), over_10s=_index_of_counts([of_ten]))
        return compared_burst(measured, planned, seconds=seconds)


class RecentArrivals:
    """How many requests came in each of the last five minutes' seconds: a few bytes a second, whatever the rate."""

    __slots__ = ("_begun", "_counts", "_last", "_latest", "_latest_until")

    def __init__(self, now_s: float) -> None:
        self._begun = self._last = int(now_s)
        self._counts = array("I", bytes(array("I").itemsize * (RECENT_S + 1)))
        self._latest = recent_burst(())
        self._latest_until = self._begun  # from this second on it is computed anew

    def add(self, now_s: float) -> None:
        """Count a request that comes now."""
        self._pass(int(now_s))
        self._counts[self._last % len(self._counts)] += 1

    def counts(self, now_s: float) -> tuple[int, ...]:
        """Return the counts of whole seconds, the oldest first: those since the first whole one, five minutes' at most."""
        self._pass(int(now_s))
        kept = len(self._counts)
        first, end = max(self._begun + 1, self._last - RECENT_S) % kept, self._last % kept
        if self._last <= self._begun:
            return ()
        return tuple(self._counts[first:end] if first <= end else self._counts[first:] + self._counts[:end])

    def burst(self, now_s: float) -> ArrivalBurst:
        """Return how bursty they came, as of the last five seconds: snapshots are made more often than it changes."""
        if now_s >= self._latest_until:
            self._latest, self._latest_until = recent_burst(self.counts(now_s)), int(now_s) + _REFRESH_S
        return self._latest

    def _pass(self, second: int) -> None:
        kept = len(self._counts)
        for passed in range(max(self._last + 1, second - kept + 1), second + 1):
            self._counts[passed % kept] = 0
        self._last = max(self._last, second)


def recent_burst(counts: Sequence[int]) -> ArrivalBurst:
    """Return how bursty requests were by their counts of a second, oldest first, from the first that has one to the last.

    That nobody came before, or has come since, is no burst. Tens of seconds end with the last.
    """
    busy = [second for second, count in enumerate(counts) if count]
    counts = counts[busy[0] : busy[-1] + 1] if busy else ()
    of_ten = [sum(counts[at : at + _LONG]) for at in range(len(counts) % _LONG, len(counts), _LONG)]
    measured = Dispersion(over_1s=_index_of_counts([counts]), over_10s=_index_of_counts([of_ten]))
    return ArrivalBurst(measured=measured, planned=None, seconds=len(counts), exceeds_plan=False)


def summed_counts(found: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return what several have counted together, whose last seconds are the same."""
    newest_first = zip_longest(*(reversed(counts) for counts in found), fillvalue=0)
    return tuple(reversed([sum(each) for each in newest_first]))


def compared_burst(measured: Dispersion, planned: Dispersion | None, *, seconds: int) -> ArrivalBurst:
    """Return a measured burst of so many seconds beside the planned one, and whether it surely was above it."""
    exceeds = planned is not None and (
        _is_surely_above(measured.over_1s, planned.over_1s, windows=seconds)
        or _is_surely_above(measured.over_10s, planned.over_10s, windows=seconds // _LONG)
    )
    return ArrivalBurst(measured=measured, planned=planned, seconds=seconds, exceeds_plan=exceeds)


def pooled_burst(bursts: Sequence[ArrivalBurst]) -> ArrivalBurst:
    """Return the burst of several runs of one plan: the mean of their indices, over all their seconds."""
    return compared_burst(
        Dispersion(
            over_1s=_mean([each.measured.over_1s for each in bursts]),
            over_10s=_mean([each.measured.over_10s for each in bursts]),
        ),
        bursts[0].planned,
        seconds=sum(each.seconds for each in bursts),
    )


def planned_dispersion(workload: WorkloadSpec, rps: float) -> Dispersion | None:
    """Return the index of dispersion that a lane of so many requests a second is sized for; None: a trace has it.

    It is the workload's: a lane has the part beyond Poisson's 1 that its share of the requests leaves (thinning by chance).
    """
    if workload.trace:
        return None
    short, long = _of_workload(workload)
    share = rps / workload.peak_rps
    return Dispersion(over_1s=1.0 + (short - 1.0) * share, over_10s=1.0 + (long - 1.0) * share)


def is_dispersion_exact(workload: WorkloadSpec) -> bool:
    """Whether a workload itself says the index of dispersion of its counts; a trace has to be counted, and uneven gaps too."""
    return not workload.trace and (not is_burst_known(workload) or workload.burst_cv in (None, 1.0))


def _of_workload(workload: WorkloadSpec) -> tuple[float, float]:
    if not is_burst_known(workload):
        return UNKNOWN_DISPERSION, UNKNOWN_DISPERSION
    if workload.dispersion_1s is None and workload.dispersion_10s is None:
        square = (workload.burst_cv or 1.0) ** 2  # of a renewal process, over long windows
        return square, square
    short = workload.dispersion_1s or 1.0
    return short, workload.dispersion_10s or short


def _is_surely_above(index: float | None, planned: float | None, *, windows: int) -> bool:
    """Whether an index of so many windows is above another with 99 % confidence.

    (n - 1) * index / true index is about chi-square with n - 1 degrees of freedom (Cox and Lewis); its quantile is Wilson
    and Hilferty's.
    """
    if index is None or planned is None:
        return False
    free = windows - 1
    quantile = free * (1.0 - 2.0 / (9.0 * free) + _SURE_Z * math.sqrt(2.0 / (9.0 * free))) ** 3
    return index * free / quantile > planned


def _mean(indices: Sequence[float | None]) -> float | None:
    known = [index for index in indices if index is not None]
    return sum(known) / len(known) if known else None


def is_burst_known(workload: WorkloadSpec) -> bool:
    """Whether a profile says how bursty arrivals are, in one way or another; a trace shows it."""
    return bool(workload.trace) or not workload.burst_cv is workload.dispersion_1s is workload.dispersion_10s is None


def index_of_dispersion(stretches: Sequence[tuple[float, float, Sequence[float]]], window_s: float) -> float | None:
    """Return the variance of the counts of arrivals in windows of this length over their mean; 1 is Poisson.

    A stretch is (start, end, arrivals) in seconds; windows lie side by side from its start, and vary around the stretch's
    own mean. None: under ten windows, or under ten arrivals. (Cox and Lewis, The Statistical Analysis of Series of
    Events, 1966.)
    """
    counts = []
    for start_s, end_s, arrivals in stretches:
        windows = math.floor((end_s - start_s) / window_s + 1e-9)
        found = Counter(int((at_s - start_s) // window_s) for at_s in arrivals)
        counts.append([found[number] for number in range(windows)])
    return _index_of_counts(counts)


def _index_of_counts(stretches: Sequence[Sequence[int]]) -> float | None:
    """Return the variance over the mean of the counts of windows, each stretch's around its own mean; None: too few."""
    counted, squares, total = 0, 0.0, 0
    free = 0
    for counts in stretches:
        if not counts:
            continue
        mean = sum(counts) / len(counts)
        squares += math.fsum([(count - mean) ** 2 for count in counts])
        counted, total, free = counted + len(counts), total + sum(counts), free + len(counts) - 1
    if counted < _COUNTS_MIN or total < _COUNTS_MIN or not free:
        return None
    return squares / free / (total / counted)

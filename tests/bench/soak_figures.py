"""What a soak measured, and whether it is flat: slopes by a fit that a few odd samples do not move."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Two samples nearer than this say more of noise than of a trend.
_APART_S_MIN = 60.0
_SAMPLES_MIN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One figure of one process, or of the whole, at an instant."""

    at_s: float
    role: str  # "controller", "gateway", "engine", "load", "fleet"
    source: str  # the process's pid; a new process starts a new line
    figure: str
    reading: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How fast a figure may grow, per minute, and how high it may be."""

    per_minute_max: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure of a role over the last two thirds of a soak."""

    role: str
    figure: str
    first: float  # medians of the first and the last tenth
    last: float
    highest: float
    per_minute: float | None  # None: no source was there for long enough
    bound: Bound

    @property
    def is_kept(self) -> bool:
        """Whether it stays inside its bound."""
        grows = self.bound.per_minute_max is not None and (self.per_minute or 0.0) > self.bound.per_minute_max
        return not grows and (self.bound.max is None or self.highest <= self.bound.max)

    def __str__(self) -> str:
        """Return one line of the table."""
        slope = "-" if self.per_minute is None else f"{self.per_minute:+.3f}"
        limit = "" if self.bound.per_minute_max is None else f"<= {self.bound.per_minute_max:g}/min"
        limit += "" if self.bound.max is None else f" max {self.bound.max:g}"
        verdict = "ok" if self.is_kept else "FAILS"
        return (
            f"{self.role:<11}{self.figure:<16}{self.first:>12.2f}{self.last:>12.2f}{self.highest:>12.2f}"
            f"{slope:>12}  {limit:<22}{verdict}"
        )


HEADER = f"{'role':<11}{'figure':<16}{'first':>12}{'last':>12}{'highest':>12}{'per minute':>12}  {'bound':<22}"


def slope_per_minute(points: Iterable[tuple[str, float, float]]) -> float | None:
    """Return the median slope of all pairs of one source (Theil and Sen); None: too few. A point is source, seconds, reading."""
    by_source: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for source, at_s, reading in points:
        by_source[source].append((at_s, reading))
    slopes = [
        (later - earlier) / (to_s - from_s) * 60.0
        for line in by_source.values()
        if len(line) >= _SAMPLES_MIN
        for (from_s, earlier), (to_s, later) in combinations(sorted(line), 2)
        if to_s - from_s >= _APART_S_MIN
    ]
    return median(slopes) if slopes else None


def rows(samples: Iterable[Sample], bounds: dict[tuple[str, str], Bound], *, from_s: float) -> list[Row]:
    """Return a row for each figure, over what was sampled from an instant on."""
    found: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.at_s >= from_s:
            found[sample.role, sample.figure].append(sample)
    return [_row(key, each, bounds.get(key, Bound())) for key, each in sorted(found.items())]


def _row(key: tuple[str, str], samples: list[Sample], bound: Bound) -> Row:
    readings = [sample.reading for sample in sorted(samples, key=lambda sample: sample.at_s)]
    tenth = max(1, len(readings) // 10)
    return Row(
        role=key[0],
        figure=key[1],
        first=median(readings[:tenth]),
        last=median(readings[-tenth:]),
        highest=max(readings),
        per_minute=slope_per_minute((sample.source, sample.at_s, sample.reading) for sample in samples),
        bound=bound,
    )

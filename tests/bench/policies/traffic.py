"""Requests to simulate: rates over time, gaps of any burstiness, lengths of a real trace or by its published percentiles."""

from __future__ import annotations

import bisect
import math
import os
import random
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.config.trace import read_rows
from fleetctl.load.trace import Arrival

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TRACE_ENV = "FLEETCTL_LENGTHS_TRACE"  # a request trace whose lengths are drawn from
DAY_ENV = "FLEETCTL_DAY_TRACE"  # a request trace of days, whose rates are followed
_DAY_S, _BIN_S = 86400.0, 300.0
BURSTY_TRACE_ENV = "FLEETCTL_BURSTY_TRACE"  # a request trace whose gaps are real, for the case bursty-real
# The public Azure LLM conversation trace of 2023 (Splitwise, ISCA 2024): P50 and P99 of prompt and output tokens.
PUBLISHED = ((1020.0, 4142.0), (129.0, 601.0))
_Z99 = 2.3263478740408408
_GAP_LEAST = 1e-12  # of a request: what is smaller would be walked through without end, half by half
_BATCH_SHARE = 0.05
_LENGTH_MAX = 2.0  # of the P99, as its longest prompts are


@dataclass(frozen=True)
class Rate:
    """Requests a second, linear between (seconds, rate) points."""

    points: tuple[tuple[float, float], ...]

    def at(self, at_s: float) -> float:
        after = bisect.bisect_right(self.points, at_s, key=itemgetter(0))
        if after in (0, len(self.points)):
            return self.points[max(0, after - 1)][1]
        (began_s, before), (ends_s, end) = self.points[after - 1 : after + 1]
        return before + (at_s - began_s) / (ends_s - began_s) * (end - before)

    @property
    def most(self) -> float:
        return max(rate for _, rate in self.points)


def steps(*levels: tuple[float, float]) -> Rate:
    """Levels of (seconds, rate), each held."""
    points, at_s = [], 0.0
    for seconds, rate in levels:
        points += [(at_s, rate), (at_s + seconds, rate)]
        at_s += seconds
    return Rate(tuple(points))


def of_a_day(mean_rps: float, day: int) -> Rate:
    """The rates of one day, scaled to a mean: of the trace that FLEETCTL_DAY_TRACE names, else low by night, high by day."""
    path = os.environ.get(DAY_ENV, "")
    counts = _counts_of(path) if path else ()
    bins = int(_DAY_S / _BIN_S)
    days = max(1, len(counts) // bins)
    shape = counts[day % days * bins :][:bins] or tuple(
        1.0 - 0.5 * math.cos(2.0 * math.pi * (number + 0.5) / bins) for number in range(bins)
    )
    scale = mean_rps * len(shape) / sum(shape)
    return Rate(tuple(((number + 0.5) * _BIN_S, scale * count) for number, count in enumerate(shape)))


@lru_cache(maxsize=2)
def _counts_of(path: str) -> tuple[float, ...]:
    """Return a trace's requests, five minutes by five minutes."""
    counts: list[float] = []
    for row in read_rows(Path(path)):
        number = int(row.arrival_s / _BIN_S)
        counts += [0.0] * (number + 1 - len(counts))
        counts[number] += 1.0
    return tuple(counts)


def conversation(trace: str = "") -> Callable[[random.Random], tuple[int, int]]:
    """Lengths of the trace that is given, here or by FLEETCTL_LENGTHS_TRACE; else by the published percentiles."""
    path = trace or os.environ.get(TRACE_ENV, "")
    if path:
        known = _lengths_of(path)
        return lambda dice: known[dice.randrange(len(known))]
    return lognormal(*PUBLISHED)


def lognormal(prompt: tuple[float, float], output: tuple[float, float]) -> Callable[[random.Random], tuple[int, int]]:
    """Lengths by the P50 and P99 of prompt and output tokens."""
    return lambda dice: (_lognormal(dice, *prompt), _lognormal(dice, *output))


def scaled(
    lengths: Callable[[random.Random], tuple[int, int]], factor: float
) -> Callable[[random.Random], tuple[int, int]]:
    """The same with longer prompts."""

    def drawn(dice: random.Random) -> tuple[int, int]:
        prompt, output = lengths(dice)
        return round(prompt * factor), output

    return drawn


@lru_cache(maxsize=4)
def _lengths_of(path: str) -> Sequence[tuple[int, int]]:
    return [(row.prompt_tokens, max(1, row.output_tokens)) for row in read_rows(Path(path))]


def _lognormal(dice: random.Random, p50: float, p99: float) -> int:
    drawn = dice.lognormvariate(math.log(p50), math.log(p99 / p50) / _Z99)
    return max(1, round(min(drawn, _LENGTH_MAX * p99)))


def arrivals(
    rate: Rate,
    seconds: float,
    lengths: Callable[[random.Random], tuple[int, int]],
    *,
    seed: int,
    batch_share: float = _BATCH_SHARE,
    cv: float = 1.0,
) -> Iterator[Arrival]:
    """Yield requests in order of time; `cv` is the gaps' coefficient of variation, 1 is Poisson."""
    dice = random.Random(f"arrivals/{seed}")
    shape, at_s = 1.0 / cv**2, 0.0
    while True:
        # A gap is drawn in units of expected requests and walked through a changing rate.
        due = dice.gammavariate(shape, 1.0 / shape)
        while due > _GAP_LEAST:
            step_s = min(1.0, due / max(rate.at(at_s), 1e-6))
            due -= step_s * max(rate.at(at_s + step_s / 2), 1e-6)
            at_s += step_s
            if at_s >= seconds:
                return
        batch = dice.random() < batch_share
        prompt, output = lengths(dice)
        yield Arrival(at_s=at_s, prompt_tokens=prompt, output_tokens=output, stream=not batch, batch=batch)


def merged(*traces: Iterator[Arrival]) -> list[Arrival]:
    """Several at once, in order of time."""
    return sorted((row for trace in traces for row in trace), key=lambda row: row.at_s)


def fixed(prompt: int, output: int) -> Callable[[random.Random], tuple[int, int]]:
    """Every request alike."""
    return lambda dice: (prompt, output)


def real_gaps(
    trace: str, rps: float, seconds: float, lengths: Callable[[random.Random], tuple[int, int]], *, seed: int
) -> list[Arrival]:
    """Requests at a stretch of a real trace's instants, which one by seed, at this mean rate; a short trace gives less."""
    dice = random.Random(f"real/{seed}")
    instants = _instants_of(trace)
    count = min(round(rps * seconds), len(instants) // 2)
    first = dice.randrange(len(instants) - count)
    stretch = instants[first : first + count]
    pace = count / rps / (stretch[-1] - stretch[0])
    found = []
    for instant in stretch:
        batch = dice.random() < _BATCH_SHARE
        prompt, output = lengths(dice)
        at_s = (instant - stretch[0]) * pace
        found.append(Arrival(at_s=at_s, prompt_tokens=prompt, output_tokens=output, stream=not batch, batch=batch))
    return found


@lru_cache(maxsize=2)
def _instants_of(path: str) -> Sequence[float]:
    return [row.arrival_s for row in read_rows(Path(path))]

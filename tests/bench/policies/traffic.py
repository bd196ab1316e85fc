"""Requests to simulate: rates over time, gaps of any burstiness, lengths of a real trace or by its published percentiles."""

from __future__ import annotations

import math
import os
import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.config.trace import read_rows
from fleetctl.load.trace import Arrival

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TRACE_ENV = "FLEETCTL_LENGTHS_TRACE"  # a request trace whose lengths are drawn from
# The public Azure LLM conversation trace of 2023 (Splitwise, ISCA 2024): P50 and P99 of prompt and output tokens.
PUBLISHED = ((1020.0, 4142.0), (129.0, 601.0))
_Z99 = 2.3263478740408408
_GAP_LEAST = 1e-12  # of a request: what is smaller would be walked through without end, half by half
_LENGTH_MAX = 2.0  # of the P99, as its longest prompts are


@dataclass(frozen=True)
class Rate:
    """Requests a second, linear between (seconds, rate) points."""

    points: tuple[tuple[float, float], ...]

    def at(self, at_s: float) -> float:
        before = self.points[0]
        for point in self.points:
            if point[0] > at_s:
                share = (at_s - before[0]) / (point[0] - before[0])
                return before[1] + share * (point[1] - before[1])
            before = point
        return before[1]

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
    batch_share: float = 0.05,
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

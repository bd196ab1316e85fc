"""How fast requests arrive: the last minute's rate, unless the last seconds are surely another one."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Looked at every second; one false alarm in a few days of a steady Poisson stream.
_SURE = 1e-6
_NEGLIGIBLE = 1e-9  # of the largest term: what is left out changes no decision
# A minute that is too young for the comparison says nothing; the larger rate is taken.
_COMPARED_S_MIN = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalRate:
    """Requests a second, and over how long they were counted."""

    rps: float = 0.0
    window_s: float = 60.0
    is_new: bool = False  # surely another rate than a minute ago


def arrival_rate(*, short: int, short_s: float, long: int, long_s: float) -> ArrivalRate:
    """Return the rate now, from the counts of a short window and of a long one that ends with it.

    The short window's where its count is next to impossible for Poisson arrivals at the rate of the time before it; else
    the long window's, which carries less noise.
    """
    before_s = long_s - short_s
    if before_s < _COMPARED_S_MIN:
        return ArrivalRate(rps=max(short / short_s, long / long_s), window_s=long_s)
    expected = max(0, long - short) / before_s * short_s
    if is_improbable(short, expected):
        return ArrivalRate(rps=short / short_s, window_s=short_s, is_new=True)
    return ArrivalRate(rps=long / long_s, window_s=long_s)


def is_improbable(count: float, expected: float) -> bool:
    """Whether a Poisson count this far from what is expected is next to impossible."""
    if count > expected:
        return _tail(math.ceil(count - 1e-9), expected, step=1) < _SURE
    return count < expected and _tail(math.floor(count + 1e-9), expected, step=-1) < _SURE


def _tail(start: int, expected: float, *, step: int) -> float:
    """Return the sum of the probabilities of `start`, `start + step`, ...; away from the mean they fall off fast."""
    if expected <= 0:
        return 0.0 if start > 0 else 1.0
    term = math.exp(start * math.log(expected) - expected - math.lgamma(start + 1))
    total, at, least = 0.0, start, term * _NEGLIGIBLE
    while at >= 0 and term > least:
        total += term
        ratio = expected / (at + 1) if step > 0 else at / expected
        term, at = term * ratio, at + step
    return total

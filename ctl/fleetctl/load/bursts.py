"""Arrivals as bursty as is said: a Poisson process whose rate varies from second to second, and from ten to ten."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

_SECONDS = 10  # of the slow variation


def burst_times_s(rate: float, *, dispersion_1s: float, dispersion_10s: float, rng: random.Random) -> Iterator[float]:
    """Yield arrival times for ever, `rate` a second on average, with these indices of dispersion; ascending.

    The rate is multiplied by one gamma variable for each ten seconds (variance v10) and one for each second (v1). Counts
    of a second then have 1 + rate * ((1 + v1) * (1 + v10) - 1), those of ten seconds 9 * rate * v10 more. What is below
    Poisson's 1, or below the shorter window's, comes out as that.
    """
    dispersion_1s = max(1.0, dispersion_1s)
    v10 = max(0.0, dispersion_10s - dispersion_1s) / ((_SECONDS - 1) * rate)
    v1 = max(0.0, (1.0 + (dispersion_1s - 1.0) / rate) / (1.0 + v10) - 1.0)
    second = 0
    slow = 1.0
    while True:
        if second % _SECONDS == 0:
            slow = _factor(v10, rng)
        now_rate = rate * slow * _factor(v1, rng)
        at_s = 0.0
        while now_rate > 0.0:
            at_s += rng.expovariate(now_rate)
            if at_s >= 1.0:
                break
            yield second + at_s
        second += 1


def _factor(variance: float, rng: random.Random) -> float:
    """Return a gamma variable of mean 1."""
    return rng.gammavariate(1.0 / variance, variance) if variance > 1e-9 else 1.0

"""What counted events say of their rate: the exact interval of a Poisson count over an exposure."""

from __future__ import annotations

import math

_TAIL = 0.05  # on either side: the interval holds the true rate in nine cases of ten
_NEGLIGIBLE = 1e-12
_HALVINGS = 200
# An interval that spans more than a factor of ten tells no rate: below three events it does.
_TELLING_FACTOR = 10.0


def rate_interval(events: float, exposure_h: float) -> tuple[float, float]:
    """Return the lower and upper bound of the rate an hour at 90 % (Garwood 1936: quantiles of the Gamma distribution).

    `events` may be a fraction, where they weigh less as they age; `exposure_h` is over 0.
    """
    low = 0.0 if events <= 0.0 else _gamma_quantile(events, _TAIL)
    return low / exposure_h, _gamma_quantile(events + 1.0, 1.0 - _TAIL) / exposure_h


def is_telling(low: float, high: float) -> bool:
    """Whether an interval is narrow enough for a rate to be read from it."""
    return low > 0.0 and high <= _TELLING_FACTOR * low


def _gamma_quantile(shape: float, share: float) -> float:
    """Return x with P(X <= x) = `share` for X ~ Gamma(shape, 1), by bisection."""
    low, high = 0.0, shape + 10.0 * math.sqrt(shape) + 20.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if _gamma_share(shape, middle) < share:
            low = middle
        else:
            high = middle
        if high - low <= _NEGLIGIBLE * high:
            break
    return high


def _gamma_share(shape: float, x: float) -> float:
    """Return P(X <= x) for X ~ Gamma(shape, 1): x^a e^-x / Gamma(a + 1) * (1 + x/(a+1) + x^2/((a+1)(a+2)) + ...)."""
    if x <= 0.0:
        return 0.0
    term = total = 1.0
    at = shape
    while term > total * _NEGLIGIBLE:
        at += 1.0
        term *= x / at
        total += term
    return min(1.0, math.exp(shape * math.log(x) - x - math.lgamma(shape + 1.0) + math.log(total)))

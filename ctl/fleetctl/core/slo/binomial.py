"""How surely a few samples speak against, or for, a share: the exact binomial test."""

from __future__ import annotations

import math

_NEGLIGIBLE = 1e-12  # of the largest term: what is left out changes no decision


def chance_of_at_least(misses: int, samples: int, share: float) -> float:
    """Return P(X >= misses) for X ~ Binomial(samples, share): small, and the true share is surely higher.

    It is at most `a` just when the lower Clopper-Pearson bound at confidence 1 - a is at or over `share`.
    """
    if misses <= 0:
        return 1.0
    if misses <= samples * share:
        return 1.0 - _sum_of_terms(misses - 1, samples, share, step=-1)
    return _sum_of_terms(misses, samples, share, step=1)


def chance_if_kept(missed: int, *, refused: int, covered: int, samples: int, allowed: float, shed: float) -> float:
    """Return how likely so many misses, or more, are where a promise is kept: small, and it is surely missed.

    A lane keeps its promise where no more than the share `allowed` misses otherwise than by a refusal, and no more than `allowed`
    and `shed` together counts the refusals in. Each is tested. `missed` has the `refused` that no allowance covers in it, not the `covered`.
    """
    together = chance_of_at_least(missed + covered, samples, min(1.0, allowed + shed))
    return min(together, chance_of_at_least(missed - refused, samples, allowed)) if shed else together


def chance_of_at_most(misses: int, samples: int, share: float) -> float:
    """Return P(X <= misses) for X ~ Binomial(samples, share): small, and the true share is surely lower."""
    if misses >= samples:
        return 1.0
    if misses >= samples * share:
        return 1.0 - _sum_of_terms(misses + 1, samples, share, step=1)
    return _sum_of_terms(misses, samples, share, step=-1)


def _sum_of_terms(start: int, samples: int, share: float, *, step: int) -> float:
    """Return the sum of the probabilities of `start`, `start + step`, ...; from outside the mean they fall off fast."""
    if share <= 0.0 or share >= 1.0:
        certain = 0 if share <= 0.0 else samples
        return float((certain - start) * step >= 0)
    term = largest = _probability(start, samples, share)
    total, odds, at = 0.0, share / (1.0 - share), start
    while 0 <= at <= samples and term > largest * _NEGLIGIBLE:
        total += term
        largest = max(largest, term)
        ratio = (samples - at) / (at + 1) * odds if step > 0 else at / ((samples - at + 1) * odds)
        term, at = term * ratio, at + step
    return min(1.0, total)


def _probability(misses: int, samples: int, share: float) -> float:
    log = math.lgamma(samples + 1) - math.lgamma(misses + 1) - math.lgamma(samples - misses + 1)
    return math.exp(log + misses * math.log(share) + (samples - misses) * math.log1p(-share))

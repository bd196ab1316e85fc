"""Sums that forget."""

from __future__ import annotations

import math


class DecayedSum:
    """What was added lately: of each amount exp(-age / memory) is left. Never below 0."""

    __slots__ = ("_at_s", "_memory_s", "_sum")

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._sum = 0.0
        self._at_s = 0.0

    def add(self, amount: float, now_s: float) -> None:
        """Add an amount, or take one back that turned out too high."""
        self._sum = max(0.0, self.at(now_s) + amount)
        self._at_s = now_s

    def at(self, now_s: float) -> float:
        """Return what is left of the sum."""
        if not self._sum or now_s <= self._at_s:
            return self._sum
        return self._sum * math.exp((self._at_s - now_s) / self._memory_s)

    def rate(self, now_s: float) -> float:
        """Return how much came a second lately: the sum of a steady flow is `memory` times that."""
        return self.at(now_s) / self._memory_s

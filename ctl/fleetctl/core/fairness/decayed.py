"""Sums that forget."""

from __future__ import annotations

import math


class DecayedSum:
    """What was added lately: of each amount exp(-age / memory) is left. Never below 0."""

    __slots__ = ("_at_s", "_memory_s", "_others", "_sum")

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._sum = 0.0
        self._at_s = 0.0
        self._others: DecayedSum | None = None  # what other gateways added

    def add(self, amount: float, now_s: float) -> None:
        """Add an amount, or take one back that turned out too high."""
        self._sum = max(0.0, self.own_at(now_s) + amount)
        self._at_s = now_s

    def at(self, now_s: float) -> float:
        """Return what is left of the sum, what others added among it."""
        others = self._others
        return self.own_at(now_s) if others is None else self.own_at(now_s) + others.own_at(now_s)

    def own_at(self, now_s: float) -> float:
        """Return what is left of what was added here."""
        if not self._sum or now_s <= self._at_s:
            return self._sum
        return self._sum * math.exp((self._at_s - now_s) / self._memory_s)

    def note_others(self, amount: float, now_s: float) -> None:
        """Count beside it what is left now of what others added, in place of what they last had."""
        if amount or self._others is not None:
            self._others = DecayedSum(self._memory_s)
            self._others.add(amount, now_s)

    def rate(self, now_s: float) -> float:
        """Return how much came a second lately: the sum of a steady flow is `memory` times that."""
        return self.at(now_s) / self._memory_s

"""Chance, as decisions take it."""

from __future__ import annotations

from typing import Protocol


class RandomSource(Protocol):
    """A source of random numbers, passed in as the time is; a seeded random.Random is one."""

    def random(self) -> float:
        """Return the next number in [0, 1)."""
        ...

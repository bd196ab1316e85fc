"""Engine steps that are alike: a batch whose members stay the same takes a little longer each step, by the same amount."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Gaps closer than this fall into one bucket of a quantile sketch, or into the next.
_ALIKE = 1.02
_ROUNDING = 1e-9


class Segment:
    """`steps` engine steps from `starts_s` on: the first takes `first_s`, each other `growth_s` more than the one before."""

    __slots__ = ("first_s", "growth_s", "starts_s", "steps")

    def __init__(self, starts_s: float, first_s: float, growth_s: float, steps: int) -> None:
        self.starts_s = starts_s
        self.first_s = first_s
        self.growth_s = growth_s
        self.steps = steps

    def end_s(self, steps: int) -> float:
        """Return when so many steps are over."""
        return self.starts_s + steps * self.first_s + self.growth_s * (steps * (steps - 1) * 0.5)

    def duration_s(self, step: int) -> float:
        """Return how long a step takes, the first one being 0."""
        return self.first_s + self.growth_s * step

    def steps_until(self, now_s: float) -> int:
        """Return after how many steps, one at least, the first step boundary at or after `now_s` comes."""
        elapsed_s = now_s - self.starts_s
        if self.growth_s * self.steps < _ROUNDING * self.first_s:
            found = elapsed_s / self.first_s
        else:
            linear = self.first_s - self.growth_s / 2
            found = (math.sqrt(linear * linear + 2 * self.growth_s * elapsed_s) - linear) / self.growth_s
        steps = max(1, min(self.steps, int(found)))
        while steps > 1 and self.end_s(steps - 1) >= now_s:
            steps -= 1
        while steps < self.steps and self.end_s(steps) < now_s:
            steps += 1
        return steps

    def over(self, limit_s: float, steps: int) -> int:
        """Return how many of the first `steps` take longer than `limit_s`."""
        if self.first_s + self.growth_s * (steps - 1) <= limit_s:
            return 0
        if self.first_s > limit_s:
            return steps
        return steps - 1 - int((limit_s - self.first_s) / self.growth_s)

    def gaps(self, steps: int) -> Iterable[tuple[float, int]]:
        """Return the durations of the first `steps`, those that are alike together: (seconds, how many)."""
        last_s = self.first_s + self.growth_s * (steps - 1)
        if last_s <= self.first_s * _ALIKE:
            return (((self.first_s + last_s) * 0.5, steps),)
        return self._unlike_gaps(steps)

    def _unlike_gaps(self, steps: int) -> Iterator[tuple[float, int]]:
        done, next_s = 0, self.first_s
        while done < steps:
            alike = min(steps - done, 1 + int(next_s * (_ALIKE - 1.0) / self.growth_s))
            yield next_s + self.growth_s * (alike - 1) * 0.5, alike
            done += alike
            next_s = self.first_s + self.growth_s * done

    def skip(self, steps: int) -> None:
        """Drop the first `steps`, which are over."""
        self.starts_s = self.end_s(steps)
        self.first_s += self.growth_s * steps
        self.steps -= steps

"""How often a lane is in breach by chance alone: python -m tests.bench.false_breaches DAYS.

A lane's requests are late independently of each other, with the very share that its limit allows, or 70 % of it. Printed per
confidence: breaches a day at 0.2, 1, 5, 20 and 100 rps, of one promise, looked at every second over 10 s and 60 s.
"""

from __future__ import annotations

import math
import random
import sys
from collections import deque
from functools import cache

from fleetctl.core.slo.binomial import chance_of_at_least

RATES_RPS = (0.2, 1.0, 5.0, 20.0, 100.0)
CONFIDENCES = (0.999, 0.9999, 0.99999)
_DAY_S = 86_400


def main(days: float) -> None:
    """Print the table."""
    print("| allowed | late | confidence | " + " | ".join(f"{rps:g} rps" for rps in RATES_RPS) + " |")
    print("|---|---|---|" + "---|" * len(RATES_RPS))
    for allowed in (0.01, 0.05):
        for late in (allowed, 0.7 * allowed):
            for confidence in CONFIDENCES:
                counts = [_breaches(rps, late, allowed, 1.0 - confidence, days) / days for rps in RATES_RPS]
                cells = " | ".join(f"{count:.1f}" for count in counts)
                print(f"| {allowed:.1%} | {late:.1%} | {confidence} | {cells} |", flush=True)


def _breaches(rps: float, late: float, allowed: float, chance: float, days: float) -> int:
    """Return how many breaches begin; one that ended within the last minute is the same."""
    dice = random.Random(f"{rps} {late} {chance}")
    windows = [_Window(10), _Window(60)]
    begun, last_s = 0, -_DAY_S
    for second in range(int(_DAY_S * days)):
        count = _poisson(dice, rps)
        over = sum(dice.random() < late for _ in range(count))
        for window in windows:
            window.add(count, over)
        short, long = windows
        is_missed = short.is_missed(allowed, chance) or (long.is_missed(allowed, chance) and short.is_over(allowed))
        if is_missed:
            begun += second - last_s > 60
            last_s = second
    return begun


class _Window:
    """The last seconds' requests, and those of them that were late."""

    def __init__(self, length_s: int) -> None:
        self._cells: deque[tuple[int, int]] = deque(maxlen=length_s)
        self._count = self._over = 0

    def add(self, count: int, over: int) -> None:
        if len(self._cells) == self._cells.maxlen:
            self._count -= self._cells[0][0]
            self._over -= self._cells[0][1]
        self._cells.append((count, over))
        self._count += count
        self._over += over

    def is_over(self, allowed: float) -> bool:
        return self._over > self._count * allowed

    def is_missed(self, allowed: float, chance: float) -> bool:
        return self.is_over(allowed) and self._over >= _least(self._count, allowed, chance)


@cache
def _least(count: int, allowed: float, chance: float) -> int:
    """Return how many late ones of `count` are next to impossible; more than `count` if any are possible."""
    late = int(count * allowed) + 1
    while late <= count and chance_of_at_least(late, count, allowed) > chance:
        late += 1
    return late


def _poisson(dice: random.Random, mean: float) -> int:
    limit, product, count = math.exp(-mean), dice.random(), 0
    while product > limit:
        product *= dice.random()
        count += 1
    return count


if __name__ == "__main__":
    main(float(sys.argv[1]))

"""What a simulated lane came to beyond the lane's own accounts: figures over time, replicas, scaling."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from fleetctl.core.dispersion import ArrivalCounts
from fleetctl.core.slo.sketch import QuantileSketch
from fleetctl.model.slo import covered_refusals


@dataclass(slots=True)
class Bucket:
    """The requests that arrived within one stretch of time."""

    offered: int = 0
    good: int = 0
    refused: int = 0
    shed: int = 0  # misses that are a refusal
    undecided: int = 0  # had not ended with the simulation, inside every limit
    ready_s: float = 0.0  # replica-seconds in rotation

    def is_over(self, objective: float, shed: float) -> bool:
        """Whether fewer of its requests are good than the objective asks for; `shed` is the share that may be refused."""
        decided = self.offered - self.undecided
        return self.good + covered_refusals(self.shed, allowance=shed * decided) < objective * decided


class LaneRecorder:
    """Grows with time and with kinds of refusals, not with requests."""

    __slots__ = (
        "_direction",
        "_wanted",
        "arrivals",
        "buckets",
        "came_again",
        "held_s",
        "ready_s",
        "refusals",
        "reversals",
        "tpot",
        "undecided",
        "unfinished",
        "usd",
        "wanted_max",
    )  # fmt: skip

    def __init__(self) -> None:
        self.buckets: list[Bucket] = []
        self.arrivals = ArrivalCounts()  # of clients, those that come back after a refusal left out
        self.refusals: Counter[str] = Counter()
        self.came_again = 0  # clients that came back when they were told to
        self.unfinished = 0  # had not ended with the simulation
        self.undecided = 0  # of these: inside every limit
        self.held_s = 0.0  # replica-seconds from order to end
        self.ready_s = 0.0  # replica-seconds in rotation
        self.usd = 0.0
        self.tpot = QuantileSketch()  # seconds per output token of whole streamed answers
        self.reversals = 0  # of the wanted count's direction
        self.wanted_max = 0
        self._wanted = -1
        self._direction = 0

    def bucket(self, at_s: float, length_s: float) -> Bucket:
        """Return the stretch of time an instant is in."""
        index = int(at_s // length_s)
        buckets = self.buckets
        while len(buckets) <= index:
            buckets.append(Bucket())
        return buckets[index]

    def wanted(self, count: int) -> None:
        """Note how many replicas the policy wants now."""
        if count == self._wanted:
            return
        if self._wanted >= 0:
            direction = int(math.copysign(1, count - self._wanted))
            self.reversals += direction == -self._direction
            self._direction = direction
        self._wanted = count
        self.wanted_max = max(self.wanted_max, count)

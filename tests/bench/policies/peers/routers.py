"""Routers: round robin, least request, power of two choices, length buckets, least predicted TTFT, llm-d's endpoint picker.

Envoy: envoyproxy.io/docs, load balancers (ROUND_ROBIN; LEAST_REQUEST is two choices at equal weights); HAProxy's `leastconn` is
the full scan. The endpoint picker of the Gateway API inference extension (llm-d's) scores 2 * queue + 2 * KV + 3 * prefix
and takes the best, by figures up to 50 ms old; sheddable requests get 429 while the mean over the pool of max(waiting / 5,
KV / .8) is 1 or more; its flow control holds them by the same figure.
Simplified: engines here have no prefix cache, so that score is 0 for all, and prefix affinity as a router is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.core.random_source import RandomSource
from fleetctl.core.routing.picker import Picker
from fleetctl.model.profile import RoutingRules
from tests.bench.policies.peers.gateway import EngineReadings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.routing.candidate import Candidate

_QUEUE_WEIGHT, _KV_WEIGHT = 2.0, 2.0
_QUEUE_LIMIT, _KV_LIMIT = 5.0, 0.8


@dataclass(slots=True)
class RoundRobin:
    """One after the other."""

    _turn: int = 0

    def pick(self, candidates: Sequence[Candidate], request: ActiveRequest, now_s: float) -> Candidate:
        """Return the next one."""
        del request, now_s
        self._turn += 1
        return candidates[self._turn % len(candidates)]


@dataclass(slots=True)
class LeastOutstanding:
    """The fewest requests under way, ties by chance."""

    rng: RandomSource

    def pick(self, candidates: Sequence[Candidate], request: ActiveRequest, now_s: float) -> Candidate:
        """Return one of those with the fewest."""
        del request, now_s
        fewest = min(c.in_flight for c in candidates)
        found = [c for c in candidates if c.in_flight == fewest]
        return found[int(self.rng.random() * len(found))]


@dataclass(slots=True)
class PowerOfTwo:
    """The less busy of two that are drawn."""

    rng: RandomSource

    def pick(self, candidates: Sequence[Candidate], request: ActiveRequest, now_s: float) -> Candidate:
        """Return the one of two with fewer requests under way."""
        del request, now_s
        first = int(self.rng.random() * len(candidates))
        second = (first + 1 + int(self.rng.random() * (len(candidates) - 1))) % len(candidates)
        return min((candidates[first], candidates[second]), key=lambda c: c.in_flight)


@dataclass(slots=True)
class LengthBuckets:
    """Short prompts to the first replicas, the others to the rest; the border follows the work that has come so far.

    Work is tokens, an answer's counted `decode_weight` times; while all are of one kind there is one bucket. Within a
    bucket the fewest outstanding.
    """

    rng: RandomSource
    short_below: int = 1000
    decode_weight: float = 4.0
    _work: list[float] = field(default_factory=lambda: [0.0, 0.0])  # short, long

    def pick(self, candidates: Sequence[Candidate], request: ActiveRequest, now_s: float) -> Candidate:
        """Return one of the request's bucket."""
        is_long = request.prompt.prompt_tokens >= self.short_below
        self._work[is_long] += request.prompt.prompt_tokens + self.decode_weight * (request.tokens.output or 0)
        if len(candidates) > 1 and all(self._work):
            share = self._work[0] / sum(self._work)
            border = min(len(candidates) - 1, max(1, round(share * len(candidates))))
            candidates = candidates[border:] if is_long else candidates[:border]
        return LeastOutstanding(self.rng).pick(candidates, request, now_s)


@dataclass(slots=True)
class LeastPredictedTtft:
    """The project's own scorer, without anything else of the project's gateway."""

    rng: RandomSource
    _picker: Picker = field(default_factory=lambda: Picker(RoutingRules()))

    def pick(self, candidates: Sequence[Candidate], request: ActiveRequest, now_s: float) -> Candidate:
        """Return the one with the best score."""
        return self._picker.pick(candidates, request.prompt, self.rng, now_s) or candidates[0]


@dataclass(slots=True)
class EndpointPicker:
    """The inference extension's default profile: queue and KV scorers, the maximum wins, ties by chance."""

    rng: RandomSource
    readings: EngineReadings

    def pick(self, candidates: Sequence[Candidate], request: ActiveRequest, now_s: float) -> Candidate:
        """Return one of those with the highest score."""
        del request
        figures = [self.readings.of(c.id, now_s) for c in candidates]
        scores = picker_scores([waiting for waiting, _ in figures], [kv for _, kv in figures])
        best = max(scores)
        found = [c for c, score in zip(candidates, scores, strict=True) if score >= best - 1e-9]
        return found[int(self.rng.random() * len(found))]


def picker_scores(waiting: Sequence[int], kv_usage: Sequence[float]) -> list[float]:
    """Return each endpoint's score: a queue's place between the shortest (1) and the longest (0), and the free KV share."""
    shortest, longest = min(waiting), max(waiting)
    spread = longest - shortest
    queues = [(longest - each) / spread if spread else 1.0 for each in waiting]
    return [_QUEUE_WEIGHT * queue + _KV_WEIGHT * (1.0 - kv) for queue, kv in zip(queues, kv_usage, strict=True)]


def pool_saturation(waiting: Sequence[int], kv_usage: Sequence[float]) -> float:
    """Return the mean over endpoints of max(waiting / 5, KV / .8)."""
    each = [max(queue / _QUEUE_LIMIT, kv / _KV_LIMIT) for queue, kv in zip(waiting, kv_usage, strict=True)]
    return sum(each) / len(each)


@dataclass(slots=True)
class SaturationDetector:
    """Turns sheddable requests away while the pool is saturated."""

    readings: EngineReadings

    def open_to(self, candidates: Sequence[Candidate], now_s: float) -> Sequence[Candidate]:
        """Return all, or nobody once the pool's mean saturation is 1 or more."""
        figures = [self.readings.of(c.id, now_s) for c in candidates]
        saturation = pool_saturation([waiting for waiting, _ in figures], [kv for _, kv in figures])
        return candidates if saturation < 1.0 else ()


@dataclass(slots=True)
class InFlightCap:
    """Keeps every endpoint under so many requests under way (a plug-in that the guide does not name)."""

    cap: int

    def open_to(self, candidates: Sequence[Candidate], now_s: float) -> Sequence[Candidate]:
        """Return those below the cap."""
        del now_s
        return [c for c in candidates if c.in_flight < self.cap]

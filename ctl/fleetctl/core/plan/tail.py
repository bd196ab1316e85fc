"""The distribution of TTFT over a lane's replicas: overhead + running step + queue + the prompt's own chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.plan.replica import OVERHEAD_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.plan.replica import ReplicaModel, SteadyState

_PRECISION = 1e-8  # of a quantile, relative
_NOT_AN_END = 1e-3  # of an interval
_LEAST_CHANCE = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class TtftTail:
    """TTFT as overhead + running step (0 when idle, else uniform) + queue (0, else exponential) + prefill by prompt."""

    prefill_s: tuple[float, ...]
    busy_chance: float  # of meeting a running step
    running_step_max_s: float
    wait_chance: float  # of queueing behind other prompts
    wait_rate: float  # 1/s, of the exponential part

    def exceeds(self, limit_s: float) -> float:
        """Return the chance that TTFT is over `limit_s`."""
        left_s = limit_s - OVERHEAD_S
        return math.fsum(self._wait_exceeds([left_s - p for p in self.prefill_s])) / len(self.prefill_s)

    def _wait_exceeds(self, slacks_s: Sequence[float]) -> list[float]:
        """Return P(running step + queue > slack) of each slack, the running step's rest being uniform."""
        longest, rate, chance = self.running_step_max_s, self.wait_rate, self.wait_chance
        busy_chance, idle_chance = self.busy_chance, (1.0 - self.busy_chance) * chance
        exp = math.exp
        found = []
        for slack_s in slacks_s:  # most of the time of a plan
            if slack_s <= 0:
                found.append(1.0)
                continue
            # Over u uniform in (0, longest): certain where u > slack, else the queue must make up slack - u.
            idle = exp(-rate * slack_s)
            if slack_s < longest:
                busy = (longest - slack_s + chance * (1.0 - idle) / rate) / longest
            else:
                busy = chance * (exp(-rate * (slack_s - longest)) - idle) / rate / longest
            found.append(busy_chance * busy + idle_chance * idle)
        return found

    def quantile_s(self, fraction: float) -> float:
        """Return the TTFT not exceeded with this probability.

        By false position on the chance's logarithm, which is nearly straight in the tail; with a bisection wherever that has
        not halved the interval, as the chance has steps.
        """
        tail = 1.0 - fraction
        low, high = 0.0, 1.0
        over_low, over_high = -math.log(tail), self._log_exceeds(high, tail)
        while over_high > 0.0:
            low, over_low = high, over_high
            high *= 2
            over_high = self._log_exceeds(high, tail)
        is_halved = True
        while high - low > _PRECISION * high:
            width = high - low
            share = over_low / (over_low - over_high) if is_halved else 0.5
            # Never at an end itself, so that the interval shrinks whichever side the root is on.
            middle = low + width * min(max(share, _NOT_AN_END), 1.0 - _NOT_AN_END)
            over = self._log_exceeds(middle, tail)
            if over > 0.0:
                low, over_low = middle, over
            else:
                high, over_high = middle, over
            is_halved = high - low <= width / 2
        return high

    def _log_exceeds(self, limit_s: float, tail: float) -> float:
        return math.log(max(self.exceeds(limit_s), _LEAST_CHANCE) / tail)

    def wait_quantile_s(self, fraction: float) -> float:
        """Return the queue's own quantile, the running step left out."""
        tail = 1.0 - fraction
        return 0.0 if self.wait_chance <= tail else math.log(self.wait_chance / tail) / self.wait_rate

    def parts_at(self, ttft_s: float) -> tuple[float, float, float]:
        """Return (running step, queue, prefill) of the requests that take about `ttft_s`; they sum to it less overhead."""
        slack = [ttft_s - OVERHEAD_S - p for p in self.prefill_s]
        band = max(self.running_step_max_s, 1e-3) / 4
        before, after = (self._wait_exceeds([s + shift for s in slack]) for shift in (-band, band))
        weights = [max(0.0, sooner - later) for sooner, later in zip(before, after, strict=True)]
        total = math.fsum(weights)
        if total <= 0.0:
            weights, total = [1.0] * len(slack), float(len(slack))
        waited = math.fsum(w * s for w, s in zip(weights, slack, strict=True)) / total
        waited = min(max(waited, 0.0), ttft_s - OVERHEAD_S)
        running = min(waited, self.running_step_max_s)
        return running, waited - running, ttft_s - OVERHEAD_S - waited


def ttft_tail(replica: ReplicaModel, state: SteadyState, replicas: int) -> TtftTail:
    """Return the lane's TTFT distribution over `replicas` such replicas, routed to the least loaded.

    The prompt queue is G/G/m with service in tokens at the full chunk's pace (Allen-Cunneen with Sakasegawa's
    approximation); arrivals have the lane's burst CV. What is running is met at a random moment: its rest has the
    mean E[step^2] / 2 E[step].
    """
    load = state.prefill_load
    service_s = load / state.rps if state.rps else 0.0
    exponent = math.sqrt(2.0 * (replicas + 1)) - 1.0
    variability = (replica.demand.burst_cv**2 + replica.work_scv) / 2.0
    chance = load**exponent
    mean_wait_s = variability * chance / (replicas * (1.0 - load)) * service_s
    square = (1 - state.mixed_share) * state.decode_step_s**2 + state.mixed_share * state.mixed_step_s**2
    mean = (1 - state.mixed_share) * state.decode_step_s + state.mixed_share * state.mixed_step_s
    return TtftTail(
        prefill_s=tuple(replica.prefill_times_s(state)),
        # Idle when no sequence is resident (M/G/infinity) and no prompt in work: then a prompt starts at once.
        busy_chance=1.0 - (1.0 - load) * math.exp(-state.running),
        running_step_max_s=square / mean,
        wait_chance=chance,
        wait_rate=chance / mean_wait_s if mean_wait_s > 0 else 1e9,
    )

"""The distribution of TTFT over a lane's replicas: overhead + running step + queue + the prompt's own chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.plan.replica import OVERHEAD_S

if TYPE_CHECKING:
    from fleetctl.core.plan.replica import ReplicaModel, SteadyState

_BISECTIONS = 36


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
        return math.fsum([self._wait_exceeds(left_s - p) for p in self.prefill_s]) / len(self.prefill_s)

    def _wait_exceeds(self, slack_s: float) -> float:
        """Return P(running step + queue > slack), the running step's rest being uniform."""
        if slack_s <= 0:
            return 1.0
        longest, rate = self.running_step_max_s, self.wait_rate
        inside = min(slack_s, longest)
        # Over u uniform in (0, longest): certain where u > slack, else the queue must make up slack - u.
        idle = math.exp(-rate * slack_s)
        queue = (math.exp(-rate * (slack_s - inside)) - idle) / rate
        busy = (longest - inside + self.wait_chance * queue) / longest
        return self.busy_chance * busy + (1.0 - self.busy_chance) * self.wait_chance * idle

    def quantile_s(self, fraction: float) -> float:
        """Return the TTFT not exceeded with this probability."""
        low, high = 0.0, 1.0
        while self.exceeds(high) > 1.0 - fraction:
            low, high = high, high * 2
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.exceeds(middle) > 1.0 - fraction else (low, middle)
        return high

    def wait_quantile_s(self, fraction: float) -> float:
        """Return the queue's own quantile, the running step left out."""
        tail = 1.0 - fraction
        return 0.0 if self.wait_chance <= tail else math.log(self.wait_chance / tail) / self.wait_rate

    def parts_at(self, ttft_s: float) -> tuple[float, float, float]:
        """Return (running step, queue, prefill) of the requests that take about `ttft_s`; they sum to it less overhead."""
        slack = [ttft_s - OVERHEAD_S - p for p in self.prefill_s]
        band = max(self.running_step_max_s, 1e-3) / 4
        weights = [max(0.0, self._wait_exceeds(s - band) - self._wait_exceeds(s + band)) for s in slack]
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

"""How likely those that run at once need more KV cache than there is: what the mean does not show, and streams are preempted for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.core.perf.sequence_kv import ALIKE, SequenceKv
from fleetctl.model.eviction import EvictionRules
from fleetctl.units import format_fraction

if TYPE_CHECKING:
    from fleetctl.core.plan.workload import LaneDemand

# The published healthy rate. A share of time that the cache overflows is no less than the share of requests that are
# preempted for it: a step that overflows preempts one of those running, or a few.
OVERFLOW_MAX = EvictionRules().rate_max
# Of the exponent, in longest requests: the bound is the best of these.
_EXPONENTS = tuple(0.05 * 1.5**power for power in range(18))


class KvOverflow:
    """A lane's requests as a KV cache sees them.

    Sequences that run at once are Poisson in number, each with a prompt and as much of its answer as an instant finds: longer
    answers are found more often. The bound is Chernoff's, on a compound Poisson sum: never too low, and some times too high.
    """

    def __init__(self, demand: LaneDemand, kept: SequenceKv = ALIKE) -> None:
        outputs, answer = demand.output.points, demand.output.mean
        prompts = [prompt + kept.besides(prompt + answer) for prompt in demand.prompt.points]
        longest = max(prompts) + max(outputs)
        self._moments: list[tuple[float, float]] = []  # exponent, mean of exp(exponent x tokens held) - 1
        for scaled in _EXPONENTS:
            exponent = scaled / longest
            prompt = math.fsum(math.exp(exponent * p) for p in prompts) / len(prompts)
            grown = math.fsum(math.expm1(exponent * n) for n in outputs) / (exponent * math.fsum(outputs))
            self._moments.append((exponent, prompt * grown - 1.0))

    def chance(self, running: float, kv_tokens: float) -> float:
        """Return the most that the chance can be, at any instant, that `running` sequences on average hold over `kv_tokens`."""
        bounds = (running * more - exponent * kv_tokens for exponent, more in self._moments)
        return math.exp(min(0.0, *bounds))


def overflow_text(chance: float) -> str:
    """Return the forecast in words."""
    shown = f"{100.0 * max(chance, 1e-6):.2g}%"
    return (
        f"forecast evictions: at most {shown} of requests are preempted at the peak, of {format_fraction(OVERFLOW_MAX)}"
    )

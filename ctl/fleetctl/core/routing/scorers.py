"""How well each candidate suits a request: a list of scores in [0, 1], one per candidate, higher is better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from fleetctl.core.routing.candidate import Candidate, PromptLoad

Scorer: TypeAlias = Callable[[Sequence[Candidate], PromptLoad], list[float]]

# Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016): no more than this over the mean.
LOAD_BOUND = 1.25
# Below a millisecond two predictions are the same.
_RESOLUTION_S = 1e-3


def least_predicted_ttft(candidates: Sequence[Candidate], prompt: PromptLoad) -> list[float]:
    """Score by the predicted time to the first token: the shortest gets 1, twice as long 0.5.

    The prefill work in front of it, stretched by the batch it runs in: up to twofold when every slot is taken.
    """
    tokens, cached = prompt.prompt_tokens, prompt.cached_tokens
    predicted = [
        (_RESOLUTION_S + (c.prefill_tokens + tokens - cached.get(c.id, 0)) / (c.prefill_tokens_per_s or 1.0))
        * (1.0 + c.in_flight / c.concurrency_max)
        for c in candidates
    ]
    best = min(predicted)
    return [best / p for p in predicted]


def prefix_affinity(candidates: Sequence[Candidate], prompt: PromptLoad) -> list[float]:
    """Score by the share of the prompt found in the prefix cache, 0 for replicas over the load bound."""
    if not prompt.cached_tokens:
        return [0.0] * len(candidates)
    bound = max(1.0, LOAD_BOUND * (sum([c.in_flight for c in candidates]) + 1) / len(candidates)) - 1
    total, cached = prompt.prompt_tokens or 1, prompt.cached_tokens
    return [cached.get(c.id, 0) / total if c.in_flight <= bound else 0.0 for c in candidates]

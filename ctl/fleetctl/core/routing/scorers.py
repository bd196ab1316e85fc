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
    """Score by the prefill work in front of the first token: the shortest gets 1, twice as long 0.5."""
    predicted = [
        _RESOLUTION_S + (c.prefill_tokens + prompt.uncached(c.id)) / max(c.prefill_tokens_per_s, 1.0)
        for c in candidates
    ]
    best = min(predicted)
    return [best / p for p in predicted]


def least_loaded(candidates: Sequence[Candidate], prompt: PromptLoad) -> list[float]:
    """Score by free slots: decode steps get longer with every request in the batch."""
    del prompt
    return [max(0.0, 1.0 - c.in_flight / max(c.concurrency_max, 1)) for c in candidates]


def prefix_affinity(candidates: Sequence[Candidate], prompt: PromptLoad) -> list[float]:
    """Score by the share of the prompt found in the prefix cache, 0 for replicas over the load bound."""
    if not prompt.cached_tokens:
        return [0.0] * len(candidates)
    bound = LOAD_BOUND * (sum(c.in_flight for c in candidates) + 1) / len(candidates)
    total = max(prompt.prompt_tokens, 1)
    return [
        min(1.0, prompt.cached_tokens.get(c.id, 0) / total) if c.in_flight + 1 <= max(bound, 1.0) else 0.0
        for c in candidates
    ]

"""Scores by what of the prompt a replica should have in its prefix cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.routing.candidate import Candidate, PromptLoad

# Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016): no more than this over the mean.
LOAD_BOUND = 1.25


def prefix_affinity(candidates: Sequence[Candidate], prompt: PromptLoad, now_s: float) -> list[float]:
    """Score by the share of the prompt found in the prefix cache, 0 for replicas over the load bound. Nothing cached: none."""
    del now_s
    if not prompt.cached_tokens:
        return []
    share = LOAD_BOUND * (sum([c.in_flight for c in candidates]) + 1) / len(candidates)
    bound = share - 1 if share > 1.0 else 0.0
    total, cached = prompt.prompt_tokens or 1, prompt.cached_tokens
    return [cached.get(c.id, 0) / total if c.in_flight <= bound else 0.0 for c in candidates]

"""Scores by the predicted time to the first token."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.routing.candidate import Candidate, PromptLoad

# Below a millisecond two predictions are the same.
_RESOLUTION_S = 1e-3


def least_predicted_ttft(candidates: Sequence[Candidate], prompt: PromptLoad) -> list[float]:
    """Score the shortest predicted time to the first token 1, one twice as long 0.5.

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

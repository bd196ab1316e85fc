"""Scores by the predicted time to the first token."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.routing.candidate import Candidate, PromptLoad

# Below a millisecond two predictions are the same.
_RESOLUTION_S = 1e-3


def least_predicted_ttft(candidates: Sequence[Candidate], prompt: PromptLoad, now_s: float) -> list[float]:
    """Score the shortest predicted time to the first token 1, one twice as long 0.5.

    The prompts in front of it and its own, stretched by the batch it runs in: up to twofold when every slot is taken.
    """
    tokens, cached = prompt.prompt_tokens, prompt.cached_tokens
    predicted = []
    for c in candidates:
        line = c.line
        own_tokens = tokens - cached.get(c.id, 0) if cached else tokens
        ttft_s = _RESOLUTION_S + (line.fixed_s + own_tokens * line.s_per_token) * line.stretch
        if line.count:
            ttft_s += line.wait_s(now_s)
        predicted.append(ttft_s * (1.0 + c.in_flight / (c.concurrency_max or 1)))
    best = min(predicted)
    return [best / p for p in predicted]

"""Filter, score, pick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.routing.scorers import Scorer, least_predicted_ttft, prefix_affinity

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from fleetctl.core.routing.candidate import Candidate, PromptLoad

# Weights of the sum; the time to the first token is what the lanes promise.
SCORERS: tuple[tuple[Scorer, float], ...] = ((least_predicted_ttft, 3.0), (prefix_affinity, 1.0))
# Scores closer than this are a tie.
_TIE = 1e-3


def pick(
    candidates: Sequence[Candidate],
    prompt: PromptLoad,
    rng: random.Random,
    *,
    scorers: Sequence[tuple[Scorer, float]] = SCORERS,
) -> Candidate | None:
    """Return the candidate with the highest weighted score, ties broken by `rng`. None: no candidates."""
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    columns = [(weight, scorer(candidates, prompt)) for scorer, weight in scorers]
    best, tied = -1.0, []
    for index, candidate in enumerate(candidates):
        total = 0.0
        for weight, scores in columns:
            total += weight * scores[index]
        if total > best + _TIE:
            best, tied = total, [candidate]
        elif total >= best - _TIE:
            tied.append(candidate)
    return tied[0] if len(tied) == 1 else tied[int(rng.random() * len(tied))]

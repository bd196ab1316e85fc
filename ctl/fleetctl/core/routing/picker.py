"""Filter, score, pick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.routing.registry import FILTERS, SCORERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleetctl.core.random_source import RandomSource
    from fleetctl.core.routing.candidate import Candidate, PromptLoad
    from fleetctl.core.routing.registry import Filter, Scorer
    from fleetctl.model.profile import RoutingRules

# Scores closer than this are a tie.
_TIE = 1e-3


class Picker:
    """Picks by the weighted sum of the scorers that the rules name, among what their filters leave."""

    __slots__ = ("_filters", "_scorers")

    def __init__(
        self, rules: RoutingRules, *, scorers: Mapping[str, Scorer] = SCORERS, filters: Mapping[str, Filter] = FILTERS
    ) -> None:
        """Raises KeyError for a name that is not registered."""
        self._scorers = tuple((scorers[name], weight) for name, weight in rules.scorers.items() if weight)
        self._filters = tuple(filters[name] for name in rules.filters)

    def pick(
        self, candidates: Sequence[Candidate], prompt: PromptLoad, rng: RandomSource, now_s: float
    ) -> Candidate | None:
        """Return the candidate with the highest weighted score, ties broken by `rng`. None: no candidates."""
        for keep in self._filters:
            candidates = keep(candidates, prompt) or candidates
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        columns = []
        for score, weight in self._scorers:
            scores = score(candidates, prompt, now_s)
            if scores:
                columns.append((weight, scores))
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

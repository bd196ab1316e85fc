"""Which share of the requests of a length each lane takes, as the gateway chooses."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import product
from typing import TYPE_CHECKING

from fleetctl.core.admission.generation import most_tokens
from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.admission.tokens import PromptSize, RequestTokens, TokenRatio
from fleetctl.core.lanes import LaneChoice
from fleetctl.core.plan.traced import ANYTHING, RequestHints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.profile import Profile, WorkloadSpec

PREFIX_HIT_MAX = 0.99
# No prompt is estimated at more than four times the least it may be, a token aside.
_MARGIN_SPAN = 8


def prefix_hit(profile: Profile) -> float:
    """Return the share of prompts that the profile says is cached: none where no lane's engines cache any."""
    return min(profile.workload.prefix_hit, PREFIX_HIT_MAX) if caches_prefixes(profile) else 0.0


def caches_prefixes(profile: Profile) -> bool:
    """Say whether any lane's engines cache prefixes."""
    return any(lane.launch.prefix_caching is not False for lane in profile.lanes)


def _kinds(workload: WorkloadSpec, hints: RequestHints) -> Iterator[tuple[bool, bool, float]]:
    """Yield (carries the batch hint, streams, share of such requests) of every kind, as `load` sends them."""
    for hint, hinted in reversed(_split(hints.batch, workload.batch_share)):
        for stream, streamed in _split(hints.stream, 0.0 if hint else workload.stream_share):
            if hinted * streamed:
                yield hint, stream, hinted * streamed


def _split(claim: bool | None, share: float) -> tuple[tuple[bool, float], ...]:
    """Return a claim's two values with their shares: what is said of it, else `share` for True."""
    return ((True, share), (False, 1.0 - share)) if claim is None else ((claim, 1.0),)


class LaneShares:
    """Computes the share of the requests of a length that each lane takes; what no lane takes is refused, and no demand.

    Every length is put to the lane choice as the gateway puts it before it has learned from any answer: clients are
    taken to ask for as many tokens (max_tokens) as the output distribution says.
    """

    def __init__(self, profile: Profile) -> None:
        self._workload = profile.workload
        self._choices = tuple(
            (model.name, model.share, LaneChoice(lanes))
            for model in profile.models
            if (lanes := tuple(lane for lane in profile.lanes if profile.model_of(lane) is model))
        )
        self._miss = 1.0 - prefix_hit(profile)
        self._ratio = TokenRatio()
        self._answer_max = most_tokens(lane.generation for lane in profile.lanes) or math.inf
        self._lengths = sorted({lane.max_model_len for lane in profile.lanes if lane.max_model_len})
        self._tables: dict[tuple[int, RequestHints], tuple[tuple[float, ...], list[dict[str, float]]]] = {}

    @property
    def by_output(self) -> bool:
        """Whether the lane depends on the answer's length: where a lane has a pinned max_model_len."""
        return bool(self._lengths)

    def edges(self, output_tokens: float) -> tuple[float, ...]:
        """Return the uncached prompt tokens between which, with such an answer, all requests are chosen alike; from 0."""
        return self._table(output_tokens, ANYTHING)[0]

    def of(self, uncached_tokens: float, output_tokens: float, hints: RequestHints = ANYTHING) -> dict[str, float]:
        """Return lane -> share of the requests with this much prefill work and such an answer, of those that ask so."""
        edges, by_interval = self._table(output_tokens, hints)
        return by_interval[bisect_right(edges, uncached_tokens) - 1]

    def of_cached(
        self, prompt_tokens: int, cached_tokens: int, output_tokens: int, hints: RequestHints
    ) -> dict[str, float]:
        """Return the same of one whose cached part is known: whether a lane holds it depends on the whole prompt."""
        uncached_tokens = max(0, prompt_tokens - cached_tokens)
        if not self.by_output:
            return self.of(uncached_tokens, output_tokens, hints)
        output = round(min(output_tokens, self._answer_max))
        return self._shares(uncached_tokens, prompt_tokens, output, hints)

    def _table(self, output_tokens: float, hints: RequestHints) -> tuple[tuple[float, ...], list[dict[str, float]]]:
        output = round(min(output_tokens, self._answer_max)) if self.by_output else 0
        if (output, hints) not in self._tables:
            edges = self._edges(output)
            ends = (*edges[1:], 2.0 * edges[-1] + 2.0)
            middles = ((low + high) / 2.0 for low, high in zip(edges, ends, strict=True))
            self._tables[output, hints] = (
                edges,
                [self._shares(middle, round(middle / self._miss), output, hints) for middle in middles],
            )
        return self._tables[output, hints]

    def _edges(self, output: int) -> tuple[float, ...]:
        edges: set[float] = {edge for _, _, choice in self._choices for edge in choice.edges}
        for held in self._lengths:
            whole = held - max(1, output)  # the longest prompt of which a lane holds all
            edges |= {(prompts + 0.5) * self._miss for prompts in (whole, self._longest_possible(held)) if prompts >= 0}
        return tuple(sorted(edges))

    def _longest_possible(self, held: int) -> int:
        """Return the longest prompt that may, by the margin of its estimate, fit into a lane that holds so many."""
        fitting = held  # a margin only lets more in
        beyond = _MARGIN_SPAN * held
        while fitting < beyond:
            middle = (fitting + beyond + 1) // 2
            if self._tokens(middle, 0).least <= held:
                fitting = middle
            else:
                beyond = middle - 1
        return fitting

    def _shares(self, uncached_tokens: float, prompt_tokens: int, output: int, hints: RequestHints) -> dict[str, float]:
        tokens = self._tokens(prompt_tokens, output)
        shares: dict[str, float] = {}
        kinds = tuple(_kinds(self._workload, hints))
        for (name, of_all, choice), (batch_hint, stream, share) in product(self._choices, kinds):
            of_model = of_all if not hints.model else float(name == hints.model)
            lane = choice.choose_holding(
                tokens,
                header=hints.lane or None,
                batch_hint=batch_hint,
                uncached_prompt_tokens=lambda _: uncached_tokens,
                stream=stream,
            )
            if not isinstance(lane, Refusal):
                shares[lane.name] = shares.get(lane.name, 0.0) + of_model * share
        return shares

    def _tokens(self, prompt_tokens: int, output: int) -> RequestTokens:
        size = PromptSize(text_bytes=round(prompt_tokens * self._ratio.bytes_per_token))
        return self._ratio.request_tokens(size, prompt_tokens, output)

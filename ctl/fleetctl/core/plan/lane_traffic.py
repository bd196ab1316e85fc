"""Which requests of a trace are each lane's: counted by length, as many are alike, so that a row costs no more than its counting."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

from fleetctl.core.plan.lane_shares import LaneShares, caches_prefixes, prefix_hit

if TYPE_CHECKING:
    from fleetctl.core.plan.traced import TracedRequests
    from fleetctl.model.profile import Profile

_SHARE_MIN = 1e-12  # of requests of a kind: a lane with less does not get them

_Shares = tuple[tuple[str, float], ...]  # lane -> share of the requests of a kind


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTraffic:
    """A lane's part of a trace."""

    requests: int  # of which it gets some share
    share: float  # these shares, summed up
    prompts: Mapping[int, float]  # tokens -> shares of such requests, summed up
    outputs: Mapping[int, float]
    cached_tokens: float  # of its share

    @classmethod
    def of(cls, rows: TracedRequests) -> LaneTraffic:
        """Return the whole trace as one lane's."""
        cached = Counter(zip(rows.prompt_tokens, rows.cached_tokens, strict=True)) if rows.has_cached else {}
        return cls(
            requests=len(rows),
            share=float(len(rows)),
            prompts=Counter(rows.prompt_tokens),
            outputs=Counter(rows.output_tokens),
            cached_tokens=math.fsum(min(pair) * count for pair, count in cached.items()),
        )


def taken_by_lane(profile: Profile, rows: TracedRequests, shares: LaneShares) -> dict[str, LaneTraffic]:
    """Return each lane's part of a trace. What no lane takes is nobody's."""
    kinds, kind_of = _kinds(profile, rows, shares)
    requests = Counter(kind_of)
    prompts = Counter(zip(kind_of, rows.prompt_tokens, strict=True))
    outputs = Counter(zip(kind_of, rows.output_tokens, strict=True))
    cached: Counter[int] = Counter()
    if rows.has_cached:
        for (kind, *pair), count in Counter(zip(kind_of, rows.prompt_tokens, rows.cached_tokens, strict=True)).items():
            cached[kind] += min(pair) * count
    return {lane.name: _lane(lane.name, kinds, requests, prompts, outputs, cached) for lane in profile.lanes}


def lanes_of(profile: Profile, rows: TracedRequests) -> list[str]:
    """Return the lane that takes most of the requests like each one; empty: none takes any."""
    kinds, kind_of = _kinds(profile, rows, LaneShares(profile))
    likeliest = [max(each, key=lambda part: part[1])[0] if each else "" for each in kinds]
    return list(map(likeliest.__getitem__, kind_of))


def _lane(
    name: str,
    kinds: list[_Shares],
    requests: Counter[int],
    prompts: Counter[tuple[int, int]],
    outputs: Counter[tuple[int, int]],
    cached: Counter[int],
) -> LaneTraffic:
    own = {kind: found[name] for kind, each in enumerate(kinds) if name in (found := dict(each))}
    return LaneTraffic(
        requests=sum(requests[kind] for kind in own),
        share=math.fsum(share * requests[kind] for kind, share in own.items()),
        prompts=_lengths(prompts, own),
        outputs=_lengths(outputs, own),
        cached_tokens=math.fsum(share * cached[kind] for kind, share in own.items()),
    )


def _lengths(counts: Counter[tuple[int, int]], own: Mapping[int, float]) -> dict[int, float]:
    found: dict[int, float] = {}
    for (kind, tokens), count in counts.items():
        if kind in own:
            found[tokens] = found.get(tokens, 0.0) + own[kind] * count
    return found


def _kinds(profile: Profile, rows: TracedRequests, shares: LaneShares) -> tuple[list[_Shares], list[int]]:
    """Return the ways in which requests are shared out among lanes, and each request's place among them."""
    tells_cached = rows.has_cached and caches_prefixes(profile)
    miss = 1.0 - prefix_hit(profile)
    kinds: dict[_Shares, int] = {}

    def kind(prompt: int, of_prompt: int, hint: int, output: int) -> int:
        if tells_cached:
            taken_by = shares.of_cached(prompt, of_prompt, output, rows.hints[hint])
        else:  # each prompt has the profile's share
            taken_by = shares.of(prompt * miss, output, rows.hints[hint])
        found = tuple(each for each in taken_by.items() if each[1] > _SHARE_MIN)
        return kinds.setdefault(found, len(kinds))

    if not tells_cached and len(rows.hints) == 1 and not shares.by_output:  # then the prompt's length alone tells
        kind_of_prompt = {prompt: kind(prompt, 0, 0, 0) for prompt in dict.fromkeys(rows.prompt_tokens)}
        return list(kinds), list(map(kind_of_prompt.__getitem__, rows.prompt_tokens))
    # Where the lane does not depend on the answer, requests with answers of any length are alike.
    outputs = rows.output_tokens if shares.by_output else repeat(0, len(rows))
    cached = rows.cached_tokens if tells_cached else repeat(0, len(rows))
    keys = list(zip(rows.prompt_tokens, cached, rows.hint_of, outputs, strict=True))
    kind_of_key = {key: kind(*key) for key in dict.fromkeys(keys)}
    return list(kinds), list(map(kind_of_key.__getitem__, keys))

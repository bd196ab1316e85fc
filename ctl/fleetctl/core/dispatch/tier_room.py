"""What a request leaves free of its lane's replicas for those who go before it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from fleetctl.core.routing.budget import BUDGET_SHARE, in_time
from fleetctl.core.routing.usable import serving

# Forecasts of lines are no better than this; who waits is not looked at more often for it.
_REOPENS_S_MIN: Final = 0.01
# Prompts of forty thousand tokens took a fifth longer than forecast beside ones of ten thousand.
_LONGER_SHARE: Final = 0.25

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.routing.candidate import Candidate
    from fleetctl.core.routing.prefill_line import PrefillLine


def may_take_slot(request: ActiveRequest, now_s: float) -> bool:
    """Whether a slot is left for it beside those that are kept."""
    tier, tiers = request.tier, request.lane.tiers
    if tier is None or tiers is None:
        return True
    return tiers.may_take_slot(tier, request.client, request.lane.candidates, now_s)


def leaving_room(request: ActiveRequest, free: Sequence[Candidate], left_s: float, now_s: float) -> tuple[float, float]:
    """Return how late its first token may be, and how long the line it joins.

    At an engine that schedules by priority those of higher tiers pass, and so stretch the wait of all others by
    1 / (1 - their load). One mean prompt may always stand before it: an engine that is let run empty serves nobody.
    """
    tier, lane = request.tier, request.lane
    line_s_max = lane.line_s_max
    if tier is None or lane.tiers is None:
        return left_s, line_s_max
    line = free[0].line
    mean_s = line.own_s(lane.demand.mean_tokens)
    kept_s = lane.tiers.headroom_s(tier, request.client, own_s=mean_s, replicas=len(lane.candidates), now_s=now_s)
    passing = lane.tiers.passing(tier, len(lane.candidates), now_s) if free[0].by_priority else 0.0
    if not kept_s and not passing:
        return left_s, line_s_max
    least_s = min(left_s, line.own_s(request.prompt.uncached(free[0].id)) + mean_s)
    return max(least_s, (left_s - kept_s) * (1.0 - passing)), max(min(line_s_max, mean_s), line_s_max - kept_s)


def kept_open(request: ActiveRequest, free: list[Candidate], now_s: float) -> list[Candidate]:
    """Return those that a request may join so that enough engines are left to who goes before it, in time for its own prompts.

    A prompt that an engine has begun is passed by nobody, of whatever rank: what stands before a later one of a higher
    tier is bounded by that tier's own time to the first token.
    """
    tier, tiers = request.tier, request.lane.tiers
    if tier is None or tiers is None or not free:
        return free
    for other, needed in tiers.waited_for(tier, request.client, now_s):
        pool, margin = serving(request.lane.candidates), tiers.margin
        waits_s = {c.id: _wait_s_max(c.line, now_s, sure_s=other.budget_s) for c in pool}
        closed_s = {c.id: _closed_s(request, c, other.slack_s(c.line, margin), needed, waits_s) for c in free}
        free = [c for c in free if closed_s[c.id] <= 0.0]
        if not free:
            tiers.opens_at(now_s + max(_REOPENS_S_MIN, min(closed_s.values())), now_s)
            break
    return free


def _wait_s_max(line: PrefillLine, now_s: float, *, sure_s: float) -> float:
    """Return how long a prompt that joins now may have to wait, where what takes over `sure_s` may take longer than forecast.

    Attention makes long prompts longer than any straight line through short ones says.
    """
    wait_s = line.wait_s(now_s)
    return wait_s + _LONGER_SHARE * max(0.0, line.left_s() - sure_s) if line.count else wait_s


def _closed_s(
    request: ActiveRequest, candidate: Candidate, slack_s: float, needed: int, waits_s: dict[str, float]
) -> float:
    """Return for how long a request may not join a replica yet: until so many others, or it with the request, are reached in time."""
    own_s = candidate.line.own_s(request.prompt.uncached(candidate.id))
    others = sorted(wait_s for key, wait_s in waits_s.items() if key != candidate.id)
    beside_s = others[needed - 1] - slack_s if needed <= len(others) else math.inf
    return min(beside_s, waits_s.get(candidate.id, 0.0) + own_s - slack_s if own_s <= slack_s else math.inf)


def timely(
    request: ActiveRequest,
    pool: Sequence[Candidate],
    left_s: float,
    line_s_max: float,
    now_s: float,
    *,
    or_idle: bool = True,
) -> list[Candidate]:
    """Return those of a pool that answer a request in time, whose tier goes before others at some engines.

    A forecast fills a part of the TTFT alone. Of a tier that had less than its due, whose requests would have to be refused,
    one is sent that fills it all: most of them are in time.
    """
    tier, tiers = request.tier, request.lane.tiers
    rank = tier.rank if tier is not None else None
    found = in_time(pool, request.prompt, left_s=left_s, line_s_max=line_s_max, now_s=now_s, or_idle=or_idle, rank=rank)
    if found or tier is None or tiers is None or tiers.excess(tier, now_s):
        return found
    left_s += tier.budget_s * (1.0 / BUDGET_SHARE - 1.0)
    return in_time(pool, request.prompt, left_s=left_s, line_s_max=line_s_max, now_s=now_s, or_idle=or_idle, rank=rank)

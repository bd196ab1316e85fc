"""What a request leaves free of its lane's replicas for those who go before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.routing.budget import in_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.routing.candidate import Candidate


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


def timely(
    request: ActiveRequest,
    pool: Sequence[Candidate],
    left_s: float,
    line_s_max: float,
    now_s: float,
    *,
    or_idle: bool = True,
) -> list[Candidate]:
    """Return those of a pool that answer a request in time, whose tier goes before others at some engines."""
    rank = request.tier.rank if request.tier is not None else None
    return in_time(pool, request.prompt, left_s=left_s, line_s_max=line_s_max, now_s=now_s, or_idle=or_idle, rank=rank)

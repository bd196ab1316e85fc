"""Which other lanes' replicas hold a long prompt better than a lane's own, where those lose too much of what is cached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.routing.usable import usable

if TYPE_CHECKING:
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.routing.candidate import Candidate


def roomier(request: ActiveRequest, now_s: float) -> list[Candidate]:
    """Return replicas of the lanes it may spill to that hold a long prompt in a larger KV cache than its own lane's.

    Only where its lane's caches lose too much, and the prompt fits there now.
    """
    lane, prompt = request.lane, request.prompt
    most = lane.route.long_prompt_tokens
    if not most or prompt.prompt_tokens < most or not lane.spill:
        return []
    own = max((c.kv.capacity_tokens for c in lane.candidates), default=0.0)
    return [
        c
        for pool in lane.spill
        for c in usable(pool, now_s=now_s, prompt=prompt, tried=request.avoided, must_continue=request.must_continue)
        if c.kv.capacity_tokens > own and c.holds(request.needed_tokens)
    ]

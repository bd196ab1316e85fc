"""What a request is to the KV cache of its replica: how much of its prompt was there before, what it brought."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.evictions.kv_record import SentRequest
from fleetctl.core.routing.prefix_index import BLOCK_BYTES

if TYPE_CHECKING:
    from fleetctl.core.dispatch.request import ActiveRequest


def run_blocks(request: ActiveRequest) -> int:
    """Return how many of a prompt's blocks are the same as some earlier prompt's, by the index of prefixes."""
    cached, tokens = request.prompt.cached_tokens, request.prompt.prompt_tokens
    if not cached:
        return 0
    run = max(cached.values())
    return len(request.hashes) if run >= tokens else round(run * request.size.text_bytes / (BLOCK_BYTES * tokens))


def sent_request(request: ActiveRequest, at_s: float, until_s: float) -> SentRequest:
    """Return what a request brought to its replica's KV cache: as its engine counted, else as was estimated."""
    attempt, used = request.attempt, request.prompt_tokens_used
    tokens = attempt.own_tokens if attempt is not None else 0
    if used is not None:
        tokens = used - (request.cached_tokens_used or 0)
    made = request.stopwatch.token_count + request.output_tokens_uncounted
    return SentRequest(at_s, until_s, request.client, request.client_name, request.lane.route.name, tokens, made)

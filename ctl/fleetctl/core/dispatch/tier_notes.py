"""What a request's tier hears of it: that it came, took a slot and gave it back, and what it came to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.core.dispatch.request import ActiveRequest


def engine_rank(request: ActiveRequest, now_s: float) -> int:
    """Return what a replica is to order it by, lower first: its tier's rank, where the engine was started to look at it.

    One of a tier that has less than its floor is of the highest: what is let in for the floor's sake is to be served, and an
    engine that always takes higher ranks first would never come to it.
    """
    tier, tiers, replica = request.tier, request.lane.tiers, request.replica
    if tier is None or tiers is None or replica is None or not replica.route.priority_sign:
        return 0
    return 0 if tiers.is_short(tier, now_s) else tier.rank


def note_arrival(request: ActiveRequest, now_s: float) -> bool:
    """Count an arrival, and what its prompt asks of the lane's replicas; return whether it is a retry of a refused one."""
    tier, lane = request.tier, request.lane
    if tier is None:
        return False
    tier.accounts.offered(now_s)
    tier.arrivals.add(1.0, now_s)
    tier.arrived_s = now_s
    if lane.candidates:
        first = lane.candidates[0]
        tokens = request.prompt.uncached(first.id)
        tier.prompts.finished(tokens)
        tier.work.add(first.line.work_s(tokens), now_s)
    tier.returns.arrived(request.client)
    client, mark = tier.clients.of(request.client), request.retry_mark
    client.requests.add(1.0, now_s)
    is_retry = mark is not None and tier.refused.is_retry(request.client, mark, now_s)
    if is_retry:
        client.retries.add(1.0, now_s)
    return is_retry


def note_dispatch(request: ActiveRequest, now_s: float) -> None:
    """Count a slot, and the first time the tokens that the request is expected to be served."""
    tier, lane = request.tier, request.lane
    if tier is None:
        return
    tier.in_flight += 1
    if request.replica is not None:
        tier.taken.add(request.replica.candidate.line.work_s(request.prefill_tokens), now_s)
    if request.charged_tokens:
        return
    answer = lane.answers.mean_tokens
    if request.tokens.output:
        answer = min(answer, float(request.tokens.output))
    _charge(request, request.prompt.prompt_tokens + answer, now_s)


def note_release(request: ActiveRequest, now_s: float) -> None:
    """Count a slot that is free again."""
    tier = request.tier
    if tier is not None:
        tier.in_flight -= 1
        if request.has_answer:
            tier.service.finished(now_s - request.dispatched_s)


def note_end(request: ActiveRequest, now_s: float) -> None:
    """Count what a request came to, and put right what it was expected to be served."""
    tier, watch = request.tier, request.stopwatch
    if tier is None:
        return
    tokens = 0
    if request.charged_tokens:
        used = request.prompt_tokens_used
        prompt = request.prompt.prompt_tokens if used is None else used
        tokens = prompt + watch.token_count + max(0, request.output_tokens_uncounted)
        _charge(request, tokens - request.charged_tokens, now_s)
        tier.tokens.finished(tokens)
    refusal = request.refused[0].value if request.refused is not None else ""
    if refusal and request.retry_mark is not None:
        tier.refused.refused(request.client, request.retry_mark, now_s)
    tier.accounts.ended(now_s, watch, refusal=refusal, served_tokens=tokens)
    if request.lane.tiers is not None:
        request.lane.tiers.learn(tier, request.client, watch, now_s)


def _charge(request: ActiveRequest, tokens: float, now_s: float) -> None:
    tier = request.tier
    if tier is not None:
        request.charged_tokens += tokens
        tier.served.add(tokens, now_s)
        tier.clients.charge(request.client, tokens, now_s)

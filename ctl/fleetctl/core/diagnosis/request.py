"""Where one request's time went, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.admission.refusal import Refusal
from fleetctl.model.generation import BoundReason
from fleetctl.model.request_trace import EarlyRefusal, RequestTrace
from fleetctl.model.slo import BreachKind
from fleetctl.units import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.request_trace import RequestAttempt

# A wait shorter than this share of the time to the first token is not worth a sentence.
_SHARE_SHOWN = 0.02
# A first token this much later than predicted is the replica's doing, not the line's.
_SURPRISE = 1.5
_BOUNDS: dict[str, str] = {
    BoundReason.DEFAULT_MAX_TOKENS: "the server's length for requests that name none (generation.default_max_tokens)",
    BoundReason.MAX_TOKENS: "the server's longest answer (generation.max_tokens)",
    BoundReason.STOP: "a stop sequence of the server's (generation.stop)",
    BoundReason.MAX_DURATION: "the clock (generation.max_duration)",
    BoundReason.LOOP: "the server, as it repeated itself,",
}
_PUNCTUALITY = {"good": "good", "ttft": "late"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestExplanation:
    """One request, and the same in words."""

    headline: str  # how it ended against its lane's promise, and what cost it most
    steps: tuple[str, ...]  # where its time went, in order
    trace: RequestTrace | None = None  # None: it was refused before a lane was chosen
    early: EarlyRefusal | None = None  # as that was


def explain_request(trace: RequestTrace) -> RequestExplanation:
    """Return why a request took as long as it did."""
    cause = _main_cause(trace)
    headline = _ending(trace) + (f": {cause}" if cause else "")
    return RequestExplanation(headline=headline, steps=tuple(_steps(trace)), trace=trace)


def explain_early(refusal: EarlyRefusal) -> RequestExplanation:
    """Return why a request never had a lane."""
    reason = f" ({refusal.reason})" if refusal.reason else ""
    headline = f"refused before a lane was chosen, with HTTP {refusal.status}{reason}: {refusal.message}"
    return RequestExplanation(headline=headline, steps=(), early=refusal)


def _ending(trace: RequestTrace) -> str:
    """Return how it ended, beside what its lane promises."""
    total = format_duration(trace.total_s)
    if trace.verdict == "refused":
        return f"refused after {total}"
    if uneven := _unevenness(trace):
        return f"uneven: {uneven}"
    if trace.rejected_status is not None:
        return f"{trace.verdict}: {trace.replica} answered {trace.rejected_status} after {total}"
    if trace.verdict not in _PUNCTUALITY:
        return f"{trace.verdict}: it ended as {trace.ending} after {total}"
    if trace.ttft_s is None:
        return f"good: answered in {total}" if trace.verdict == "good" else f"late: no token came in {total}"
    promised = f" of {format_duration(trace.ttft_limit_s)} promised" if trace.ttft_limit_s is not None else ""
    return f"{_PUNCTUALITY[trace.verdict]}: its first token came after {format_duration(trace.ttft_s)}{promised}"


def _unevenness(trace: RequestTrace) -> str:
    """Return how its tokens, once they came, broke its lane's promise; empty: otherwise, or not at all."""
    match trace.verdict:
        case BreachKind.ITL:
            limit = format_duration(trace.gap_limit_s or 0.0)
            return f"{trace.gaps_over} of {trace.gaps} gaps between its tokens were over {limit}"
        case BreachKind.STREAM_GAP:
            return "too many of the gaps between its chunks were longer than promised"
        case BreachKind.STALL:
            return f"it stalled {format_count(trace.stalls, 'time')}, and its lane promises a stall rate"
        case BreachKind.TOKENS_PER_CHUNK:
            return f"its {trace.output_tokens:,} tokens came in {format_count(trace.chunks, 'chunk')}"
        case _:
            return ""


def _main_cause(trace: RequestTrace) -> str:
    """Return what cost it most."""
    if trace.refusal:
        return trace.refusal
    if trace.verdict not in ("ttft", "timeout", "error", "incomplete"):
        return ""
    failed = sum(1 for attempt in trace.attempts if attempt.failure)
    if failed:
        return f"{format_count(failed, 'replica')} failed it"
    if not trace.attempts or trace.queue_wait_s is None:
        return "it never got a replica"
    return _first_token_cause(trace, trace.attempts[-1], trace.queue_wait_s)


def _first_token_cause(trace: RequestTrace, attempt: RequestAttempt, waited_s: float) -> str:
    """Return what cost it most of the time until its first token."""
    at_replica_s = (trace.ttft_s if trace.ttft_s is not None else trace.total_s) - waited_s
    if waited_s >= at_replica_s:
        return f"{format_duration(waited_s)} of it in the lane's queue"
    if _is_surprising(trace, attempt):
        return f"{attempt.replica} took {format_duration(at_replica_s)}, far longer than predicted"
    if attempt.prompt_tokens_ahead > attempt.prompt_tokens:
        ahead = f"{attempt.prompt_tokens_ahead:,} prompt tokens of {_others(attempt.prompts_ahead)}"
        return f"{ahead} went before it on {attempt.replica}"
    return f"its own prompt of {attempt.prompt_tokens:,} tokens on {attempt.replica}"


def _steps(trace: RequestTrace) -> Iterator[str]:
    yield from _queued(trace)
    for number, attempt in enumerate(trace.attempts):
        yield _attempt(trace, attempt, is_last=number == len(trace.attempts) - 1)
    yield from _cached(trace)
    if trace.continuations:
        yield f"its stream was continued elsewhere {format_count(trace.continuations, 'time')}"
    if trace.gaps:
        yield _gaps(trace)
    if trace.loop_begin_token is not None and trace.loop_period_tokens is not None:
        period = format_count(trace.loop_period_tokens, "token")
        yield f"its answer looped from about token {trace.loop_begin_token:,} on, with a period of {period}"
    if trace.degraded:
        yield f"the lane's step cut it down: {trace.degraded}"
    if trace.limited:
        yield f"the server set the length of its answer: {trace.limited}"
    if trace.bounded_by:
        yield f"{_BOUNDS.get(trace.bounded_by, trace.bounded_by)} ended its answer after {trace.output_tokens:,} tokens"
    if trace.rejected_status is not None:
        yield "its engine found fault with the request itself, so that it is no miss of the lane's; its client has the message, which is not kept"
    if trace.retry_after_s is not None:
        yield from _refused(trace, trace.retry_after_s)


def _refused(trace: RequestTrace, return_s: float) -> Iterator[str]:
    if trace.tier_standing:
        yield trace.tier_standing
    yield f"refused: {trace.refusal}{_prediction(trace)}; it was told to come back in {format_duration(return_s)}"


def _cached(trace: RequestTrace) -> Iterator[str]:
    """Yield what became of the part of its prompt that the turn before had left cached."""
    if trace.prefix_lost:
        yield f"its prefix was lost: {trace.prefix_lost}"
    elif trace.turn > 1 and trace.cached_tokens_found is not None:
        left = f" of {trace.cached_tokens_before:,} that the turn before had left" if trace.cached_tokens_before else ""
        yield f"turn {trace.turn} of {trace.conversation}: its engine found {trace.cached_tokens_found:,} tokens cached{left}"
    if trace.preempted_beside:
        streams = format_count(trace.preempted_beside, "stream")
        yield f"{trace.replica} preempted {streams} while it was there, perhaps this one: its KV cache was full"


def _queued(trace: RequestTrace) -> Iterator[str]:
    wait_s = trace.queue_wait_s if trace.queue_wait_s is not None else trace.total_s
    if trace.queued_behind is not None:
        most = f", of {format_duration(trace.max_wait_s)} at most" if trace.max_wait_s else ""
        behind = _others(trace.queued_behind) if trace.queued_behind else "nobody"
        yield f"waited {format_duration(wait_s)} in the queue of {trace.lane}, behind {behind}{most}"
    elif trace.attempts and wait_s > _SHARE_SHOWN * trace.total_s:
        yield f"waited {format_duration(wait_s)} before it was sent to a replica"


def _attempt(trace: RequestTrace, attempt: RequestAttempt, *, is_last: bool) -> str:
    """Return "1.2s on short-2 behind 9,000 prompt tokens of 3 others, beside ...; predicted 0.9s"."""
    ahead = (
        f"behind {attempt.prompt_tokens_ahead:,} prompt tokens of {_others(attempt.prompts_ahead)}"
        if attempt.prompts_ahead
        else "with no prompt before it"
    )
    cached = f", {trace.cached_tokens:,} more cached" if is_last and trace.cached_tokens else ""
    beside = f", beside {_others(attempt.requests_beside)}" if attempt.requests_beside else ""
    own = f"its own {attempt.prompt_tokens:,} tokens{cached}"
    if attempt.kv_cache_free_tokens is not None and attempt.kv_cache_free_tokens < attempt.prompt_tokens:
        own += f", for which the KV cache had {max(0, attempt.kv_cache_free_tokens):,} free"
    predicted = f"predicted {format_duration(max(0.0, attempt.predicted_ttft_s - attempt.at_s))}"
    if attempt.failure:
        return f"sent to {attempt.replica} after {format_duration(attempt.at_s)}, which failed it: {attempt.failure}"
    took = "no first token seen"
    if trace.ttft_s is not None and is_last:
        took = format_duration(trace.ttft_s - attempt.at_s)
    elif is_last and trace.ending == "complete":
        # Nobody sees the first token of an answer that comes whole: there is nothing to hold against the prediction.
        took, predicted = (
            f"answered whole after {format_duration(trace.total_s - attempt.at_s)}",
            f"first token {predicted}",
        )
    elif is_last and trace.rejected_status is not None:
        took = f"rejected after {format_duration(trace.total_s - attempt.at_s)}"
    return f"{took} on {attempt.replica}, {ahead}, {own}{beside}; {predicted}"


def _prediction(trace: RequestTrace) -> str:
    """Return what was predicted of its wait, beside the limit that it is over."""
    if trace.refusal != Refusal.PREDICTED_WAIT or trace.predicted_wait_s is None:
        return ""
    predicted = format_duration(trace.predicted_wait_s)
    if trace.predicted_wait_s > trace.max_wait_s:
        return (
            f", {predicted} predicted where {trace.lane} lets requests wait {format_duration(trace.max_wait_s)} at most"
        )
    return f", no replica could have answered it in time: the first would be done with the prompts before it in {predicted}"


def _gaps(trace: RequestTrace) -> str:
    figures = [
        f"{name} {format_duration(value)}"
        for name, value in (("mean", trace.gap_s_mean), ("P99", trace.gap_s_p99), ("longest", trace.gap_s_max))
        if value is not None
    ]
    over = ""
    if trace.gap_limit_s is not None:
        over = f"; {trace.gaps_over} of {trace.gaps} over the lane's {format_duration(trace.gap_limit_s)}"
    stalls = f"; it stalled {format_count(trace.stalls, 'time')}" if trace.stalls else ""
    chunks = f" in {format_count(trace.chunks, 'chunk')}" if trace.chunks else ""
    return f"{trace.output_tokens:,} tokens{chunks}, gaps between them: {', '.join(figures)}{over}{stalls}"


def _is_surprising(trace: RequestTrace, attempt: RequestAttempt) -> bool:
    until_s = trace.ttft_s if trace.ttft_s is not None else trace.total_s
    predicted_s = attempt.predicted_ttft_s - attempt.at_s
    return until_s - attempt.at_s > _SURPRISE * max(predicted_s, 0.0)


def _others(count: int) -> str:
    return "1 other" if count == 1 else f"{count:,} others"

"""Causes that show in what a lane's requests met: the published tree of tail causes, over their traces."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING

from fleetctl.core.diagnosis.evidence import lacked_memory
from fleetctl.core.diagnosis.findings import Cause, CauseFound
from fleetctl.core.diagnosis.overlap import Meeting
from fleetctl.core.diagnosis.slow_replica import slow_replica
from fleetctl.model.generation import LoopAction
from fleetctl.units import format_count, format_duration, format_fraction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fleetctl.core.diagnosis.evidence import LaneEvidence
    from fleetctl.model.request_trace import RequestAttempt, RequestTrace

# A cause is named where it explains so much of what missed; two may explain the same request.
_SHARE_MIN = 0.3
_REQUESTS_COMPARED_MIN = 5
_NOISY_SHARE = 0.6  # of the prompt tokens that arrived
_CLIENTS_MIN = 2
_LONG_TIMES = 4.0  # a prompt is long beside one that is a fourth of it
_LONG_WORK, _LONG_FEW = 0.4, 0.3  # few requests, and much of the work
_PREFIX_SHARE = 0.5  # of the share of cached tokens that was planned with
_BAD_SHARE = 0.2
# A healthy model loops now and then; from a hundredth on its users talk of it.
_LOOPS_MIN, _LOOPED_SHARE = 3, 0.01
_ENGINE_FAILURES = frozenset(("error", "closed", "protocol-error", "busy", "unreachable"))
_STALLS = frozenset(("stalled", "unhealthy"))


def traffic_causes(lane: LaneEvidence) -> Iterator[CauseFound]:
    """Yield what made the lane's requests late or fail, as far as the traces tell."""
    for find in _FINDERS:
        found = find(lane)
        if found is not None:
            yield found


def waited_at_replica(traces: Iterable[RequestTrace]) -> list[tuple[RequestTrace, RequestAttempt]]:
    """Return those that were late at a replica rather than in the queue, with the last replica's part."""
    return [
        (trace, trace.attempts[-1])
        for trace in traces
        if trace.attempts
        and trace.queue_wait_s is not None
        and trace.queue_wait_s < 0.5 * (trace.ttft_s if trace.ttft_s is not None else trace.total_s)
    ]


def _errors(lane: LaneEvidence) -> CauseFound | None:
    failed = [
        trace
        for trace in lane.missed
        if trace.verdict in ("error", "incomplete", "timeout") and not trace.refusal and not lacked_memory(trace)
    ]
    if not failed or lane.share(failed) < _SHARE_MIN:
        return None
    how = Counter(attempt.failure for trace in failed for attempt in trace.attempts if attempt.failure)
    hung = sum(how[each] for each in _STALLS)
    where = Counter(attempt.replica for trace in failed for attempt in trace.attempts if attempt.failure)
    worst, count = where.most_common(1)[0] if where else ("", 0)
    details = ", ".join(f"{number} x {kind}" for kind, number in how.most_common(3))
    return CauseFound(
        cause=Cause.REPLICA_HUNG if hung * 2 > sum(how.values()) else Cause.ENGINE_ERRORS,
        lane=lane.name,
        message=f"replicas fail requests: {details or failed[-1].ending}",
        evidence=(
            f"{len(failed)} of its last {len(lane.missed)} missed requests ended so",
            f"{count} of them at {worst}" if worst else "",
        ),
        remedy=f"fleetctl logs {worst or 'REPLICA'}; replace it: fleetctl drain {worst or 'REPLICA'}",
        share=lane.share(failed),
    )


def _straggler(lane: LaneEvidence) -> CauseFound | None:
    found = slow_replica(lane)
    return found[1] if found is not None else None


def _noisy_client(lane: LaneEvidence) -> CauseFound | None:
    tokens: Counter[str] = Counter()
    for trace in lane.fleet.recent:
        if lane.name in (trace.lane, lane.name if trace.replica in _names(lane) else ""):
            tokens[trace.client] += max(1, trace.prompt_tokens - trace.cached_tokens)
    total = tokens.total()
    if len(tokens) < _CLIENTS_MIN or not total:
        return None
    client, most = tokens.most_common(1)[0]
    own = (trace for trace in lane.fleet.recent if trace.client == client)
    meeting = Meeting(own, lane.name, lane.plan.launch.max_num_batched_tokens)
    # Its own requests wait for one another as well: for those it is the cause too.
    met = [trace for trace in lane.missed if meeting.delays(trace)]
    others = [trace for trace in lane.missed if trace.client != client]
    harmed = [trace for trace in met if trace.client != client]
    is_harmful = lane.share(harmed) >= _SHARE_MIN / 3 and len(harmed) >= _SHARE_MIN * len(others)
    if most < _NOISY_SHARE * total or not harmed or not is_harmful:
        return None
    return CauseFound(
        cause=Cause.NOISY_CLIENT,
        lane=lane.name,
        message=f"client {client} sends {format_fraction(most / total)} of the prompt tokens; others miss because of it",
        evidence=(
            f"{most:,} of {total:,} uncached prompt tokens in 2m, of {len(tokens)} clients",
            f"{len(harmed)} of {len(others)} missed requests of others waited while its own were before them",
        ),
        remedy=f"give it a lane of its own (x-fleetctl-lane), or have it send less; its requests: fleetctl requests --client {client}",
        share=lane.share(met),
    )


def _names(lane: LaneEvidence) -> frozenset[str]:
    return frozenset(r.record.id for r in lane.replicas)


def _long_prompts_ahead(lane: LaneEvidence) -> CauseFound | None:
    """Name interference: prompts far longer than the lane's usual ones take most of what its engines compute."""
    arrived = [max(1, trace.prompt_tokens - trace.cached_tokens) for trace in lane.requests]
    if len(arrived) < _REQUESTS_COMPARED_MIN:
        return None
    usual = statistics.median(arrived)
    long = {t.seq: n for t, n in zip(lane.requests, arrived, strict=True) if n > _LONG_TIMES * usual}
    meeting = Meeting((t for t in lane.requests if t.seq in long), lane.name, lane.plan.launch.max_num_batched_tokens)
    late = [t for t in lane.missed if t.verdict in ("ttft", "refused", "timeout")]
    behind = [t for t in late if t.seq not in long and meeting.delays(t)]
    # Another lane, with the time they take, is what the long ones themselves want as well.
    hurt = behind + [t for t in late if t.seq in long]
    share, of_work = lane.share(hurt), sum(long.values()) / sum(arrived)
    is_few = of_work >= _LONG_WORK and len(long) <= _LONG_FEW * len(arrived)
    if not is_few or share < _SHARE_MIN:
        return None
    what = "hold up many short ones" if behind else "are late in a lane of short ones"
    return CauseFound(
        cause=Cause.LONG_PROMPTS_AHEAD,
        lane=lane.name,
        message=f"few long prompts {what}: {format_fraction(of_work)} of the prompt tokens are theirs",
        evidence=(
            f"{len(long)} of {len(arrived)} prompts in 2m are over {_LONG_TIMES * usual:,.0f} tokens; the median is {usual:,.0f}",
            f"{len(behind)} of {len(lane.missed)} missed requests waited behind such a prompt, {len(hurt) - len(behind)} are such prompts",
        ),
        remedy=f"cut the lanes lower: lanes.{lane.name}.match.uncached_prompt_tokens, so that long ones have their own",
        share=share,
    )


def _prefix_misses(lane: LaneEvidence) -> CauseFound | None:
    planned = lane.fleet.desired.profile.workload.prefix_hit
    served = [trace for trace in lane.requests if trace.attempts]
    tokens = sum(trace.prompt_tokens for trace in served)
    # What admission foresees to be late is refused, and never late.
    hurt = [trace for trace in lane.missed if trace.verdict in ("ttft", "refused", "timeout")]
    if planned <= 0.0 or not tokens or not hurt:
        return None
    hit = sum(trace.cached_tokens for trace in served) / tokens
    if hit >= _PREFIX_SHARE * planned:
        return None
    return CauseFound(
        cause=Cause.PREFIX_MISSES,
        lane=lane.name,
        message=f"{format_fraction(hit)} of its prompt tokens are cached, planned were {format_fraction(planned)}",
        evidence=(f"{len(served)} requests, {tokens:,} prompt tokens in 2m",),
        remedy="workload.prefix_hit says what is planned with; more affinity: gateway.routing.scorers.prefix-affinity",
        share=lane.share(hurt),
    )


def _prompts_too_long(lane: LaneEvidence) -> CauseFound | None:
    alone = [
        (trace, attempt)
        for trace, attempt in waited_at_replica(lane.late)
        if not attempt.prompts_ahead
        and trace.ttft_limit_s is not None
        and attempt.predicted_ttft_s - attempt.at_s > trace.ttft_limit_s
    ]
    share = lane.share(trace for trace, _ in alone)
    if share < _SHARE_MIN:
        return None
    own = statistics.median(attempt.prompt_tokens for _, attempt in alone)
    promise = lane.tier_promise(trace for trace, _ in alone)
    key = promise.key if promise is not None else f"lanes.{lane.name}.slo.ttft"
    return CauseFound(
        cause=Cause.PROMPTS_TOO_LONG,
        lane=lane.name,
        message="prompts take longer than the TTFT promised, with nothing before them",
        evidence=(f"{len(alone)} of {len(lane.missed)} missed requests; their median prompt has {own:,.0f} tokens",),
        remedy=f"a longer {key}, a lower boundary of lanes.{lane.name}.match, or a faster GPU",
        share=share,
    )


def _loops(lane: LaneEvidence) -> CauseFound | None:
    """Name answers that repeat themselves: they keep their seats until a bound ends them, and nobody wants the tokens."""
    window = lane.window
    if window.looped < _LOOPS_MIN or window.looped < _LOOPED_SHARE * window.finished:
        return None
    looped = [trace for trace in lane.requests if trace.loop_begin_token is not None]
    wasted = sum(max(0, trace.output_tokens - (trace.loop_begin_token or 0)) for trace in looped)
    where, count = Counter(trace.replica for trace in looped).most_common(1)[0] if looped else ("", 0)
    is_one = count >= _LOOPS_MIN and count == len(looped) and len(lane.replicas) > 1
    remedy = "a penalty (repetition_penalty) or another temperature in the requests, and a bound: see docs/loops.md"
    if is_one:
        remedy = f"its engine may compute nonsense: fleetctl logs {where}; replace it: fleetctl drain {where}"
    elif lane.spec.generation.loop is not LoopAction.STOP:
        remedy = f"end them: lanes.{lane.name}.generation.loop: stop; or {remedy}"
    return CauseFound(
        cause=Cause.ANSWERS_LOOP,
        lane=lane.name,
        message=f"{format_count(window.looped, 'answer')} repeat themselves" + (f", all on {where}" if is_one else ""),
        evidence=(
            f"{window.looped} in {format_duration(window.seconds)}, in which {window.finished} requests finished",
            f"{wasted:,} of {sum(trace.output_tokens for trace in lane.requests):,} tokens of the last 2m are repetition",
        ),
        remedy=remedy,
        share=lane.share(trace for trace in lane.missed if trace.loop_begin_token is not None),
    )


def _bad_requests(lane: LaneEvidence) -> CauseFound | None:
    bad = [trace for trace in lane.requests if trace.verdict == "rejected"]
    if len(bad) < _REQUESTS_COMPARED_MIN or len(bad) < _BAD_SHARE * len(lane.requests):
        return None
    client, count = Counter(trace.client for trace in bad).most_common(1)[0]
    return CauseFound(
        cause=Cause.BAD_REQUESTS,
        lane=lane.name,
        message="engines reject requests as malformed: the clients' own doing, and not counted against the SLO",
        evidence=(f"{len(bad)} of its last {len(lane.requests)} requests; {count} of client {client}",),
        remedy=f"fleetctl requests --client {client}; what the engine says of them: fleetctl logs REPLICA",
        share=0.0,
    )


_FINDERS: tuple[Callable[[LaneEvidence], CauseFound | None], ...] = (
    _errors, _straggler, _noisy_client, _long_prompts_ahead, _prefix_misses, _prompts_too_long, _loops, _bad_requests,
)  # fmt: skip

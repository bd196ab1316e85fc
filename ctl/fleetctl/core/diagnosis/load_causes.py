"""Causes that are a matter of how much there is: load against replicas, memory, steps, and bounds."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.diagnosis.capacity_causes import CAPS, why_held_back
from fleetctl.core.diagnosis.evidence import lacked_memory
from fleetctl.core.diagnosis.findings import Cause, CauseFound
from fleetctl.core.diagnosis.overlap import Meeting
from fleetctl.core.diagnosis.slow_replica import slow_replica
from fleetctl.core.diagnosis.traffic_causes import waited_at_replica
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import Mode
from fleetctl.model.slo import UNEVEN, Metric, Validity
from fleetctl.units import format_count, format_duration, format_fraction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.core.diagnosis.evidence import LaneEvidence
    from fleetctl.model.request_trace import RequestTrace

_SHARE_MIN = 0.3
_LOOP_FULL = 0.9  # of a processor: what arrives beyond that queues in the sockets
_LAG_SHARE = 0.5  # of a limit that is passed: as much again as all else may take
_FASTER_GATEWAY = "divide the load over several fleets, each with its gateway; or ./install.sh --compiled, which takes less for each token"
_GATEWAY_ALONE = "give the gateway a processor of its own: whoever else runs on its machine takes it (top -p PID; fleetctl status has its pid)"
_KV_FULL = 0.9  # the published reserve is a fifth; from here on engines preempt
_PREEMPTED_SHARE = 0.001  # of requests: the published healthy rate
_BESIDE_BATCH = 0.5
_OVERLOAD_REFUSALS = frozenset(
    refusal.value
    for refusal in (
        Refusal.QUEUE_FULL, Refusal.PREDICTED_WAIT, Refusal.MAX_WAIT, Refusal.SHED, Refusal.BREAKER, Refusal.ENGINES_BUSY,
    )
)  # fmt: skip


def load_causes(lane: LaneEvidence) -> Iterator[CauseFound]:
    """Yield in what way there is too much for what the lane has."""
    for find in _FINDERS:
        found = find(lane)
        if found is not None:
            yield found


def _gateway_cpu(lane: LaneEvidence) -> CauseFound | None:
    """Name a gateway whose event loop is late with every request: each token waits for its turn there."""
    load = lane.fleet.status.gateway_loop
    if load is None or not lane.missed:
        return None
    is_full = load.cpu_share >= _LOOP_FULL
    late = [trace for trace in lane.missed if not trace.refusal and load.lag_s >= _LAG_SHARE * _limit_s(trace)]
    # To a full loop replicas look slow, and requests are refused for it.
    hurt = lane.missed if is_full else tuple(late)
    if lane.share(hurt) < _SHARE_MIN:
        return None
    return CauseFound(
        cause=Cause.GATEWAY_CPU,
        lane=lane.name,
        message="the gateway has too little of a processor: its event loop is late with every request",
        evidence=(
            f"its event loop took {format_fraction(load.cpu_share)} of a processor over 10s",
            f"its timers are {format_duration(load.lag_s)} late (nine in ten by no more)",
            f"{len(hurt)} of {len(lane.missed)} missed requests",
        ),
        remedy=_FASTER_GATEWAY if is_full else _GATEWAY_ALONE,
        share=lane.share(hurt),
    )


def _limit_s(trace: RequestTrace) -> float:
    """Return the limit a request missed; infinite where that was none of time."""
    limit_s = trace.gap_limit_s if trace.verdict in UNEVEN else trace.ttft_limit_s
    return math.inf if limit_s is None else limit_s


def _kv_full(lane: LaneEvidence) -> CauseFound | None:
    reported = [r.engine.kv_usage for r in lane.replicas if r.engine.validity is Validity.OK]
    usages = [usage for usage in reported if usage is not None]
    preempted = sum(r.engine.preemptions for r in lane.replicas if r.engine.validity is Validity.OK)
    waited = [
        trace
        for trace in lane.missed
        if lacked_memory(trace)
        or any(a.kv_cache_free_tokens is not None and a.kv_cache_free_tokens < a.prompt_tokens for a in trace.attempts)
    ]
    is_preempting = preempted > _PREEMPTED_SHARE * max(1, lane.window.finished) and bool(preempted)
    is_full = bool(usages) and statistics.mean(usages) >= _KV_FULL
    if not lane.missed or not (
        is_full or lane.share(waited) >= _SHARE_MIN or (is_preempting and max(usages, default=0.0) >= _KV_FULL)
    ):
        return None
    return CauseFound(
        cause=Cause.KV_CACHE_FULL,
        lane=lane.name,
        message="its engines' KV cache is full: prompts wait for memory, or streams are preempted",
        evidence=(
            f"KV cache taken: {', '.join(format_fraction(each) for each in usages[:4]) or 'not known'}",
            f"{preempted:,.0f} preemptions since they started",
            f"{len(waited)} of {len(lane.missed)} missed requests found no room when they were sent, or were put aside for too long",
        ),
        remedy=f"more replicas ({_more_replicas(lane)}), a smaller lanes.{lane.name}.launch.max_num_seqs, or an fp8 KV cache",
        # Where all of them are full, memory is what keeps others waiting and refused as well.
        share=1.0 if is_full else max(lane.share(waited), _SHARE_MIN),
    )


def _batch_crowds(lane: LaneEvidence) -> CauseFound | None:
    names = {r.record.id for r in lane.replicas}
    batch_lanes = {spec.name for spec in lane.fleet.desired.profile.lanes if spec.interruptible} - {lane.name}
    guests = [trace for trace in lane.fleet.recent if trace.lane in batch_lanes and trace.replica in names]
    own = [trace for trace in lane.requests if trace.replica in names]
    guest_tokens = sum(trace.prompt_tokens + trace.output_tokens for trace in guests)
    tokens = guest_tokens + sum(trace.prompt_tokens + trace.output_tokens for trace in own)
    if not lane.missed or not tokens or guest_tokens < _BESIDE_BATCH * tokens:
        return None
    return CauseFound(
        cause=Cause.BATCH_CROWDS,
        lane=lane.name,
        message="batch requests fill its replicas",
        evidence=(
            f"{format_fraction(guest_tokens / tokens)} of the tokens on its replicas in 2m were of {', '.join(sorted(batch_lanes))}",
        ),
        remedy=f"lanes.{lane.name}.lends: false, or pause it: fleetctl shed {min(batch_lanes)} --step {LadderStep.PAUSE_BATCH.value}",
    )


def _queueing(lane: LaneEvidence) -> list[RequestTrace]:
    """Return those that waited for others: refused for it, in the queue, or in an engine's line."""
    at_replica = [
        trace
        for trace, attempt in waited_at_replica(lane.late)
        if attempt.prompts_ahead or attempt.predicted_ttft_s - attempt.at_s < (trace.ttft_limit_s or 0.0)
    ]
    kept = {id(trace) for trace in at_replica}
    waited = [
        trace
        for trace in lane.missed
        if trace.refusal in _OVERLOAD_REFUSALS
        or id(trace) in kept
        or (trace.queue_wait_s or 0.0) >= 0.5 * (trace.ttft_s if trace.ttft_s is not None else trace.total_s)
    ]
    return [trace for trace in waited if trace.verdict not in UNEVEN]


def _overload(lane: LaneEvidence) -> CauseFound | None:
    waited = _queueing(lane)
    counted = sum(number for reason, number in lane.window.shed.items() if reason in _OVERLOAD_REFUSALS)
    counted += lane.window.breached.get("ttft", 0)
    is_counted = not lane.requests and counted > _SHARE_MIN * max(1, lane.window.missed)
    if not is_counted and (not waited or lane.share(waited) < _SHARE_MIN):
        return None
    window, status = lane.window, lane.status
    bound = _bound(lane)
    shed = ", ".join(f"{number} {reason}" for reason, number in sorted(window.shed.items()))
    return CauseFound(
        cause=Cause.AT_LIMIT if bound else Cause.OVERLOAD,
        lane=lane.name,
        message=f"more arrives than {format_count(status.ready, 'replica')} can serve in time{f', and {bound[0]}' if bound else ''}",
        evidence=(
            f"{window.offered / window.seconds:.3g} requests/s over {format_duration(window.seconds)}, {window.attained} good of {window.judged}"
            + (f"; refused: {shed}" if shed else ""),
            f"queue wait P99 {format_duration(window.queue_wait.p99_s)}, queued now {status.traffic.queued if status.traffic else 0}",
            f"planned {lane.plan.replicas}, wanted {status.wanted}, ready {status.ready}",
        ),
        remedy=bound[1]
        if bound
        else f"fleetctl scale {lane.name}={status.wanted + 1}; the controller does so by itself in a moment",
        share=lane.share(waited) if waited else 1.0,
    )


def _bound(lane: LaneEvidence) -> tuple[str, str] | None:
    """Return which bound keeps it from having more replicas, and where that is set. None: none does."""
    desired, name = lane.fleet.desired, lane.name
    if name in desired.overrides.replicas:
        return f"somebody has set it to {desired.overrides.replicas[name]}", f"fleetctl scale {name}=auto"
    if desired.profile.control.mode is Mode.SHADOW:
        return "the controller only watches (shadow)", "control.mode: active"
    if held_back := why_held_back(lane):
        return held_back, CAPS
    if lane.status.wanted >= lane.spec.replicas.max:
        return f"it is at its maximum of {lane.spec.replicas.max}", f"lanes.{name}.replicas.max"
    return None


def _more_replicas(lane: LaneEvidence) -> str:
    """Return how to have one more: the command, or what is to be raised before it can be had."""
    if why_held_back(lane):
        return f"raise {CAPS}"
    if lane.status.wanted >= lane.spec.replicas.max:
        return f"it is at its maximum, raise lanes.{lane.name}.replicas.max"
    return f"fleetctl scale {lane.name}={lane.status.wanted + 1}"


def _crowded(lane: LaneEvidence) -> tuple[list[RequestTrace], list[RequestTrace]]:
    """Return those over their ITL that streamed beside more than planned, and the others beside a prompt that takes so long a step."""
    slow = slow_replica(lane)
    straggler = slow[0] if slow is not None else None
    meeting = Meeting(lane.fleet.recent, lane.name, lane.plan.launch.max_num_batched_tokens)
    over = [
        trace
        for trace in lane.missed
        if trace.verdict in UNEVEN and trace.attempts and trace.replica != straggler and not _is_within_itl(trace)
    ]
    planned = max(1.0, lane.plan.forecast.concurrency)
    crowded = [trace for trace in over if trace.attempts[-1].requests_beside + 1 > planned]
    kept = {id(trace) for trace in crowded}
    return crowded, [trace for trace in over if id(trace) not in kept and meeting.lengthens_steps(trace)]


def _is_within_itl(trace: RequestTrace) -> bool:
    """Whether a request's own gaps were as promised; it was stalled then, or broken off, and missed by that."""
    return bool(trace.gap_s_p99) and trace.gap_limit_s is not None and (trace.gap_s_p99 or 0.0) <= trace.gap_limit_s


def _too_many_streams(lane: LaneEvidence) -> CauseFound | None:
    crowded, beside_prompts = _crowded(lane)
    uneven = [*crowded, *beside_prompts]
    counted = 0 if lane.missed else sum(lane.window.breached.get(kind, 0) for kind in UNEVEN)
    if lane.missed and (not uneven or lane.share(uneven) < _SHARE_MIN):
        return None
    if not lane.missed and (counted < _SHARE_MIN * max(1, lane.window.missed) or not _is_itl_over(lane)):
        return None
    return CauseFound(
        cause=Cause.TOO_MANY_STREAMS,
        lane=lane.name,
        message="gaps between tokens are longer than promised: the steps of a full batch, or of long prompts among it",
        evidence=tuple(_streams_met(lane, crowded, beside_prompts))
        if uneven
        else (
            f"{counted} of {lane.window.missed} misses over {format_duration(lane.window.seconds)}",
            f"ITL P99 {format_duration(lane.window.itl.p99_s)}",
        ),
        remedy=f"lanes.{lane.name}.launch.max_num_seqs or max_num_batched_tokens lower; or more replicas: {_more_replicas(lane)}",
        share=lane.share(uneven) if uneven else 1.0,
    )


def _is_itl_over(lane: LaneEvidence) -> bool:
    """Whether the lane's own gaps are over what is promised of them, where no single request is known."""
    limits = [target.limit_s for target in lane.spec.slo.targets if target.metric is Metric.ITL]
    return any(lane.window.itl.p99_s > limit_s for limit_s in limits)


def _streams_met(lane: LaneEvidence, crowded: list[RequestTrace], beside_prompts: list[RequestTrace]) -> Iterator[str]:
    """Yield what those who were over their ITL met at their replica, and how long their gaps were."""
    if crowded:
        beside = statistics.median(trace.attempts[-1].requests_beside + 1 for trace in crowded)
        yield (
            f"{len(crowded)} of {len(lane.missed)} missed requests were among {beside:.0f} at their replica (median), "
            f"planned {lane.plan.forecast.concurrency:.0f}"
        )
    if beside_prompts:
        yield (
            f"{len(beside_prompts)} of {len(lane.missed)} missed requests streamed beside a prompt that takes a step longer than the ITL promised"
        )
    both = [*crowded, *beside_prompts]
    gaps_s = [trace.gap_s_p99 for trace in both if trace.gap_s_p99]
    limit_s = next((trace.gap_limit_s for trace in both if trace.gap_limit_s is not None), None)
    if gaps_s and limit_s is not None:
        yield f"their ITL P99 is {format_duration(statistics.median(gaps_s))} (median), promised {format_duration(limit_s)}"


_FINDERS: tuple[Callable[[LaneEvidence], CauseFound | None], ...] = (
    _gateway_cpu,
    _kv_full,
    _batch_crowds,
    _overload,
    _too_many_streams,
)

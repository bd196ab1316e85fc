"""The last requests of every lane, those that missed their SLO for longer: kept as they are, put into words when asked for.

What is kept of one is the dispatcher's own record of it, a kilobyte or so. Every ring is bounded by number, and each part
of a record by size, so a lane has some two megabytes at the most.
"""

from __future__ import annotations

import math
from collections import deque
from datetime import timedelta
from heapq import heappush, heappushpop
from itertools import chain
from typing import TYPE_CHECKING

from fleetctl.core.client_label import client_label
from fleetctl.core.slo.endings import Ending
from fleetctl.gateway.cut_requests import CutRequests
from fleetctl.gateway.request_ids import RequestIds, trace_id
from fleetctl.gateway.tier_standing import standing_of
from fleetctl.gateway.traced_turn import turn_of
from fleetctl.gateway.workflows import end_call
from fleetctl.model.request_trace import RequestAttempt, RequestTrace, RequestTraces, TraceQuery

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from fleetctl.clock import Clock
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.gateway.tier_metrics import NamedClients
    from fleetctl.gateway.workflows import RequestWorkflows

# Of every lane: whatever ended last; those that missed, which a healthy lane has few of; refusals, which come in storms.
_RECENT_MAX, _MISSED_MAX, _REFUSED_MAX = 1024, 512, 256
# And the slowest of these seconds and of those before.
_SLOWEST_MAX, _SLOWEST_S = 16, 600.0

_NO_HASHES: list[int] = []  # of a prompt; nothing is added to it, and deleting the attribute costs ten times as much


class LaneRings:
    """One lane's."""

    __slots__ = ("missed", "recent", "refused", "slow_s", "slowest", "slowest_before", "slowest_since_s")

    def __init__(self) -> None:
        self.recent: deque[ActiveRequest] = deque(maxlen=_RECENT_MAX)
        self.missed: deque[ActiveRequest] = deque(maxlen=_MISSED_MAX)
        self.refused: deque[ActiveRequest] = deque(maxlen=_REFUSED_MAX)
        self.slowest: list[tuple[float, int, ActiveRequest]] = []  # a heap
        self.slowest_before: list[tuple[float, int, ActiveRequest]] = []
        self.slowest_since_s = 0.0
        self.slow_s = -1.0  # a slower one is among the slowest

    def note_slow(self, slow_s: float, ended: ActiveRequest) -> None:
        """Keep one of the slowest."""
        ended_s = ended.stopwatch.ended_s
        if ended_s - self.slowest_since_s > _SLOWEST_S:
            self.slowest_before, self.slowest, self.slowest_since_s = self.slowest, [], ended_s
        if len(self.slowest) < _SLOWEST_MAX:
            heappush(self.slowest, (slow_s, ended.seq, ended))
        else:
            heappushpop(self.slowest, (slow_s, ended.seq, ended))
        self.slow_s = self.slowest[0][0] if len(self.slowest) == _SLOWEST_MAX else -1.0

    def all(self) -> Iterable[ActiveRequest]:
        """Return whatever is remembered; some of it several times."""
        slowest = (ended for _, _, ended in chain(self.slowest, self.slowest_before))
        return chain(self.recent, self.missed, self.refused, slowest)


class EndedRequests:
    """Every lane's; `note` is called once for every request that had a lane."""

    def __init__(self, clock: Clock, started_at: datetime) -> None:
        self._clock = clock
        self._started_at = started_at
        self._lanes: dict[str, LaneRings] = {}
        self._seq = 0
        self.ids = RequestIds(started_at)
        self.cuts = CutRequests()
        self.clients: NamedClients | None = None  # of keys with names; None: nobody counts them
        self.workflows: RequestWorkflows | None = None  # None: the profile has none

    def note(self, request: ActiveRequest) -> None:
        """Remember a request that is over, without its exchange, which holds what its client wrote."""
        rings = self._lanes.get(request.lane.route.name)
        if rings is None:
            rings = self._lanes[request.lane.route.name] = LaneRings()
        self._seq += 1
        request.seq = self._seq
        del request.exchange
        request.hashes = _NO_HASHES
        rings.recent.append(request)
        if request.client_name and self.clients is not None:
            self.clients.note(request)
        if request.workflow is not None:
            end_call(self.workflows, request)
        stopwatch, attempt = request.stopwatch, request.attempt
        if attempt is not None and (attempt.failure is not None or attempt.before is not None):
            self.cuts.note(request)
        if not stopwatch.is_good:
            _keep_missed(rings, request)
        slow_s = stopwatch.ttft_s or stopwatch.ended_s - stopwatch.started_s
        if slow_s > rings.slow_s:
            rings.note_slow(slow_s, request)

    def kept(self, lane: str) -> tuple[ActiveRequest, ...]:
        """Return the records of a lane's last requests, the last one last."""
        return tuple(self._lanes[lane].recent) if lane in self._lanes else ()

    def find(self, query: TraceQuery) -> RequestTraces:
        """Return the requests somebody asks for."""
        now_s, now = self._clock.monotonic_s(), self._clock.now()
        found = self._since(query) if query.after is not None else self._newest(query)
        after = query.after
        forgotten = 0 if after is None else max(0, self._seq - after - self._kept_after(after))
        return RequestTraces(
            started_at=self._started_at,
            at=now,
            last_seq=self._seq,
            requests=tuple(_trace(each, now_s=now_s, now=now) for each in found),
            forgotten=forgotten,
            workflows=self.workflows.find(query.id, now) if self.workflows is not None and query.id else (),
        )

    def _matching(self, query: TraceQuery) -> Iterator[LaneRings]:
        return (rings for name, rings in self._lanes.items() if query.lane in ("", name))

    def _newest(self, query: TraceQuery) -> list[ActiveRequest]:
        named = query.id.encode()
        found = {
            each.seq: each
            for rings in self._matching(query)
            for each in (chain(rings.missed, rings.refused) if query.is_missed else rings.all())
            if (not named or named in (each.id, each.traceparent) or _is_of_trace(each, query.id))
            and query.client in ("", client_label(each.client, each.client_name))
            and (not query.workflow or query.workflow == _workflow(each))
        }
        return [found[seq] for seq in sorted(found)[-query.limit :]]

    def _since(self, query: TraceQuery) -> list[ActiveRequest]:
        """Return those after a number, the first of them first: whoever asks again misses none."""
        after = query.after or 0
        found = []
        for rings in self._matching(query):
            for each in reversed(rings.recent):
                if each.seq <= after:
                    break
                found.append(each)
        return sorted(found, key=lambda each: each.seq)[: query.limit]

    def _kept_after(self, seq: int) -> int:
        return sum(each.seq > seq for rings in self._lanes.values() for each in rings.recent)


def _keep_missed(rings: LaneRings, ended: ActiveRequest) -> None:
    """Keep it for longer, unless it is neither good nor a miss, as one is whose client left in time."""
    stopwatch = ended.stopwatch
    if ended.refused is not None:
        rings.refused.append(ended)
    elif stopwatch.breach is not None:
        rings.missed.append(ended)


def _workflow(ended: ActiveRequest) -> str:
    return ended.workflow_call.workflow_id if ended.workflow_call is not None else ""


def _is_of_trace(ended: ActiveRequest, text: str) -> bool:
    return ended.traceparent is not None and trace_id(ended.traceparent) == text


def _trace(ended: ActiveRequest, *, now_s: float, now: datetime) -> RequestTrace:
    """Put what is kept of a request into the words of the model; `now_s` is the same instant as `now`."""
    watch, limits = ended.stopwatch, ended.stopwatch.limits
    ending = (watch.ending or Ending.REFUSED).value
    used = ended.prompt_tokens_used
    prompt_tokens = ended.prompt.prompt_tokens if used is None else used
    gaps, gaps_over = watch.gaps
    attempts = tuple(_attempts(ended))[::-1]
    return RequestTrace(
        seq=ended.seq,
        id=ended.id.decode(),
        trace_id=trace_id(ended.traceparent),
        workflow=_workflow(ended),
        lane=ended.lane.route.name,
        model=ended.lane.route.model,
        in_place_of=ended.in_place_of,
        adapter=ended.adapter,
        is_lane_named=ended.is_lane_named,
        client=client_label(ended.client, ended.client_name),
        at=now - timedelta(seconds=now_s - watch.started_s),
        is_stream=ended.is_stream,
        prompt_tokens=prompt_tokens,
        cached_tokens=max(0, ended.prompt.prompt_tokens - attempts[-1].prompt_tokens) if attempts else 0,
        output_tokens=max(0, watch.token_count + ended.output_tokens_uncounted),
        output_tokens_max=ended.tokens.output,
        queue_wait_s=watch.wait_s,
        queued_behind=ended.queued_behind,
        ttft_s=watch.ttft_s,
        total_s=watch.ended_s - watch.started_s,
        gaps=gaps,
        gaps_over=gaps_over,
        gap_s_mean=watch.mean_gap_s,
        gap_s_p99=watch.gap_s_p99(),
        gap_s_max=max(watch.largest_gaps_s) if watch.largest_gaps_s else None,
        chunks=watch.chunk_count,
        stalls=watch.stalls,
        attempts=attempts,
        continuations=ended.continuations,
        degraded=ended.degraded.decode("latin-1"),
        limited=ended.limited.decode("latin-1"),
        bounded_by=ended.bounded_by.value if ended.bounded_by is not None else "",
        tier=ended.tier.spec.name if ended.tier is not None else "",
        tier_standing=standing_of(ended),
        refusal=ended.refused[0].value if ended.refused is not None else "",
        retry_after_s=ended.refused[1] if ended.refused is not None else None,
        predicted_wait_s=ended.refused[2] if ended.refused is not None else None,
        loop_begin_token=ended.loop.begin_token if ended.loop is not None else None,
        loop_period_tokens=ended.loop.period_tokens if ended.loop is not None else None,
        **turn_of(ended, now_s=now_s, now=now),
        rejected_status=ended.rejected_status or None,
        ending=ending,
        verdict=watch.breach.value if watch.breach is not None else "good" if watch.is_good else ending,
        ttft_limit_s=limits.ttft_s,
        gap_limit_s=limits.itl_s,
        max_wait_s=ended.lane.route.max_wait_s,
    )


def _attempts(ended: ActiveRequest) -> Iterator[RequestAttempt]:
    """Yield what it met at each replica, the last one first."""
    started_s, attempt = ended.stopwatch.started_s, ended.attempt
    while attempt is not None:
        yield RequestAttempt(
            replica=attempt.replica_id,
            at_s=attempt.at_s - started_s,
            prompt_tokens=attempt.own_tokens,
            prompts_ahead=max(0, attempt.prompts - 1),
            prompt_tokens_ahead=max(0, attempt.prompt_tokens - attempt.own_tokens),
            requests_beside=attempt.beside,
            predicted_ttft_s=attempt.first_token_s - started_s,
            kv_cache_free_tokens=int(attempt.kv_free_tokens) if math.isfinite(attempt.kv_free_tokens) else None,
            failure=attempt.failure.value if attempt.failure is not None else "",
        )
        attempt = attempt.before

"""What the gateway remembers of a request that is over: where its time went. No text of it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.model.workflow_trace import WorkflowTrace

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAttempt:
    """One replica that a request was sent to, and what stood before it there. Times are seconds since it was accepted."""

    replica: str
    at_s: float
    prompt_tokens: int  # of its own prompt, without what the replica should have cached
    prompts_ahead: int  # that had no first token yet
    prompt_tokens_ahead: int  # theirs, uncached
    requests_beside: int  # that the replica had, those ahead included
    predicted_ttft_s: float  # from acceptance, as predicted when it was sent
    kv_cache_free_tokens: int | None = None  # for another prompt; None: not known, or all of it
    failure: str = ""  # how the replica failed it, in the words of core/dispatch/state; empty: it did not


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTrace:
    """One request, from its acceptance to its end. Times are seconds since it was accepted."""

    seq: int  # grows by one a request, from the gateway's start on
    id: str  # x-request-id: the client's where it is lawful, else the gateway's
    trace_id: str = ""  # of the client's traceparent
    workflow: str = ""  # the id of the workflow that it is a call of; empty: of none
    lane: str
    model: str = ""  # that its lane serves; empty: the fleet has one
    in_place_of: str = ""  # the model it was for, where that one's lane could not serve it; empty: its own
    adapter: str = ""  # of its model, by the name that it asked for; empty: it asked for none
    is_lane_named: bool = False  # its client named the lane
    # Its key's name; else a digest that tells clients of one gateway process apart: neither key nor address can be had from it.
    client: str
    at: datetime  # when it was accepted
    is_stream: bool
    prompt_tokens: int  # as the engine counted them, else as estimated
    cached_tokens: int  # of these, what its last replica should have had cached
    output_tokens: int
    output_tokens_max: int  # as asked for; 0: it did not say
    queue_wait_s: float | None  # until it was first sent to a replica; None: it never was
    queued_behind: int | None  # requests of its lane, when it arrived; None: it did not queue
    ttft_s: float | None  # None: no token ever came, or the answer came whole
    total_s: float
    gaps: int = 0  # between content events
    gaps_over: int = 0  # longer than the lane's limit
    gap_s_mean: float | None = None
    gap_s_p99: float | None = None
    gap_s_max: float | None = None
    chunks: int = 0  # in which its tokens left for the client
    stalls: int = 0  # gaps between them that were stalls
    attempts: tuple[RequestAttempt, ...] = ()  # the last one answered it, unless it has a failure
    continuations: int = 0  # of its stream, by another replica
    degraded: str = ""  # what a ladder step cut, in the words of x-fleetctl-degraded
    limited: str = ""  # the server's bounds that it had in place of its own, in the words of x-fleetctl-limit
    bounded_by: str = ""  # which of the server's bounds ended its answer, in the words of model/generation; empty: none
    loop_begin_token: int | None = None  # about the first of what its answer repeated; None: it was not found to
    loop_period_tokens: int | None = None  # of one round
    conversation: str = (
        ""  # its client's id of it, or the gateway's; empty: its first turn, or too short to be followed
    )
    turn: int = 0  # of it
    cached_tokens_before: int = 0  # of its prompt, that the turn before had left cached where it was served
    cached_tokens_found: int | None = None  # as its engine says; None: it does not
    prefix_lost: str = ""  # what it lost of these and why, in words; empty: nothing
    preempted_beside: int = 0  # streams that its replica preempted while it was there, perhaps its own
    tier: str = ""  # that it was served in; empty: its lane has none
    tier_standing: str = ""  # how that stood in the lane when it refused the request, in words; empty: it did not
    refusal: str = ""  # why it was turned away, in the words of x-fleetctl-reason
    retry_after_s: float | None = None  # as it was told; None: it was not refused
    predicted_wait_s: float | None = (
        None  # what it would have waited, as predicted when it was refused; None: nobody knew
    )
    rejected_status: int | None = None  # the HTTP status by which its replica rejected it; None: none did
    ending: str  # "complete", "cancelled", ... ; "refused" for a 429
    verdict: str  # "good"; how it missed, as breaches are counted; "rejected" or "cancelled" where it does not count
    ttft_limit_s: float | None = None  # its lane's, as are the next two; None: nothing promised
    gap_limit_s: float | None = None
    max_wait_s: float = 0.0

    @property
    def replica(self) -> str:
        """The last replica that had it; empty: none did."""
        return self.attempts[-1].replica if self.attempts else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyRefusal:
    """A request that the gateway answered with an error before it had a lane: nothing was measured of it."""

    id: str  # x-request-id: the client's where it is lawful, else the gateway's
    trace_id: str = ""  # of the client's traceparent
    at: datetime
    status: int  # HTTP's
    reason: str = ""  # in the words of x-fleetctl-reason, or the error's code; empty: it has none beside the status
    message: str  # as its client was told, cut


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAnswer:
    """An answer that is being generated."""

    id: str  # x-request-id
    lane: str
    client: str  # as a trace names it
    replica: str
    at: datetime  # when its request came
    total_s: float  # since then
    output_tokens: int  # so far


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceQuery:
    """Which requests somebody asks for."""

    id: str = ""  # an x-request-id, a traceparent or its trace id; empty: any
    lane: str = ""
    client: str = ""  # as a trace names it
    workflow: str = ""  # only the calls of this one
    is_missed: bool = False  # only those that missed their SLO, refusals among them
    after: int | None = None  # only those that ended after this seq, in the order they ended; None: the newest
    limit: int = 100
    running: int = 0  # so many of the longest answers under way besides


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTraces:
    """What a gateway answers."""

    started_at: datetime  # the gateway's start: `seq` begins with it
    at: datetime
    last_seq: int
    requests: tuple[RequestTrace, ...]  # in the order they ended
    forgotten: int = 0  # asked for by `after`, and no longer remembered
    workflows: tuple[WorkflowTrace, ...] = ()  # of the id that was asked for, of whichever client, the last one last
    early: tuple[EarlyRefusal, ...] = ()  # of the id that was asked for: refused before a lane was chosen
    running: tuple[RunningAnswer, ...] = ()  # those that were asked for, the longest first


def merged_traces(found: Sequence[RequestTraces], *, limit: int, running: int) -> RequestTraces:
    """Return what several gateways answer as one answer. Each has a `seq` of its own, so it says nothing among them.

    At least one is given.
    """
    by_end = sorted(
        (each for traces in found for each in traces.requests),
        key=lambda each: each.at + timedelta(seconds=each.total_s),
    )
    answers = sorted((each for traces in found for each in traces.running), key=lambda each: -each.total_s)
    return RequestTraces(
        started_at=max(traces.started_at for traces in found),
        at=max(traces.at for traces in found),
        last_seq=max(traces.last_seq for traces in found),
        requests=tuple(by_end[-limit:]),
        workflows=tuple(each for traces in found for each in traces.workflows),
        early=tuple(each for traces in found for each in traces.early),
        running=tuple(answers[:running]),
    )

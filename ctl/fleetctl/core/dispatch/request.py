"""A request as the dispatch policy knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.admission.tokens import PromptSize, RequestTokens
from fleetctl.core.dispatch.failure import Avoidance
from fleetctl.core.dispatch.replica import DispatchReplica
from fleetctl.core.dispatch.state import TRANSITIONS, IllegalTransitionError, RequestEvent, RequestState
from fleetctl.core.slo.paced import PacedStopwatch
from fleetctl.core.slo.stopwatch import RequestStopwatch

if TYPE_CHECKING:
    from fleetctl.core.admission.queue import LaneQueue, Ticket
    from fleetctl.core.admission.refusal import Refusal
    from fleetctl.core.dispatch.attempt import DispatchAttempt
    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.ports import ExchangePort
    from fleetctl.core.evictions.conversations import ConversationKey
    from fleetctl.core.evictions.note import TurnNote
    from fleetctl.core.fairness.retries import RetryMark
    from fleetctl.core.fairness.tier import LaneTier, TierStanding
    from fleetctl.core.repetition.detector import Loop
    from fleetctl.core.routing.candidate import PromptLoad
    from fleetctl.core.routing.kv_cache import KvShare
    from fleetctl.core.routing.prefill_step import PrefillTurn
    from fleetctl.core.workflows.call import WorkflowCall
    from fleetctl.core.workflows.workflow import Workflow
    from fleetctl.model.generation import BoundReason, GenerationSpec

_QUEUED = RequestState.QUEUED  # an enum's members are slow to look up
_NOBODY: frozenset[str] = frozenset()
_NO_SIZE = PromptSize(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accusation:
    """An error that a replica answered to a request, in the middle of an answer or instead of one."""

    replica: DispatchReplica
    in_answer: bool
    answers: int  # those that `in_answer` asks for, until then

    @property
    def stands(self) -> bool:
        """Whether the replica has not answered anybody since."""
        return self.answers == (self.replica.whole_answers if self.in_answer else self.replica.answers)


class ActiveRequest:
    """Lives from a request's arrival to its end; the dispatcher alone changes it, but for the fields marked below."""

    __slots__ = (
        "accusations", "adapter",
        "attempt",
        "avoided",
        "awaits_token",
        "bounded_by",
        "bounds",
        "cached_tokens_used",
        "charged_tokens",
        "client",
        "client_name",
        "continuations",
        "conversation",
        "degraded",
        "dispatched_s",
        "displaced_s",
        "displaced_until_s",
        "exchange",
        "fruitless",
        "generating_s",
        "has_answer",
        "hashes",
        "heard_s",
        "id",
        "in_place_of",
        "is_committed",
        "is_lane_named",
        "is_paused",
        "is_stream",
        "kv_share",
        "lane",
        "lane_continued",
        "limited",
        "loop",
        "must_continue",
        "needed_tokens",
        "output_tokens_uncounted",
        "prefill_tokens",
        "prompt",
        "prompt_tokens_used",
        "queue",
        "queued_behind",
        "refused",
        "rejected_status",
        "replica",
        "resends",
        "retry_mark",
        "seq",
        "size",
        "stale_at",
        "standing",
        "state",
        "stopwatch",
        "ticket",
        "tier",
        "tokens",
        "traceparent",
        "tried",
        "turn", "turn_note",
        "workflow", "workflow_call",
    )  # fmt: skip
    # What a remembered request does without; a compiled class has to say so.
    __deletable__ = ("exchange",)

    # The shell sets these, where requests are remembered.
    id: bytes
    traceparent: bytes | None
    degraded: bytes
    in_place_of: str  # the model it is for, where another stands in; "": its own serves it
    adapter: str  # of its model, that it is for; "": none
    limited: bytes  # the server's bounds that it has in place of its own, in the words of x-fleetctl-limit
    seq: int
    client_name: str  # its key's; "": it has none

    prompt_tokens_used: int | None  # what the engine said it used
    cached_tokens_used: int | None  # of these, what it did not have to compute
    conversation: ConversationKey | None  # the shell notes it: what is known of its conversation beside its prompt
    turn_note: TurnNote | None
    standing: TierStanding | None  # of its tier, when it was refused
    bounds: GenerationSpec | None  # the server's, of its answer; None: none
    generating_s: float | None  # since when tokens of this answer have come
    bounded_by: BoundReason | None  # which of the bounds ended it; the shell notes it of one that the engine kept to

    # Whoever keeps workflows sets both; None: it is part of none. The first only while the request runs.
    workflow: Workflow | None
    workflow_call: WorkflowCall | None

    def __init__(  # noqa: PLR0913  # what a request is known by
        self,
        exchange: ExchangePort,
        lane: DispatchLane[ActiveRequest],
        prompt: PromptLoad,
        hashes: list[int],
        now_s: float,
        *,
        is_stream: bool,
        size: PromptSize = _NO_SIZE,
        tokens: RequestTokens | None = None,
        is_lane_named: bool = False,
        client: int = 0,
        bounds: GenerationSpec | None = None,
        tier: LaneTier | None = None,
        retry_mark: RetryMark | None = None,
    ) -> None:
        self.exchange, self.lane, self.prompt = exchange, lane, prompt
        self.size = size
        self.tokens = tokens or RequestTokens(prompt.prompt_tokens, prompt.prompt_tokens, prompt.prompt_tokens)
        # What its replica must hold of it; more, once an engine has said that this is too little.
        self.needed_tokens = self.tokens.needed(lane.route.max_model_len)
        self.is_lane_named = is_lane_named  # by its client: no other lane may take it
        self.client = client  # an opaque key of whoever sent it
        self.hashes, self.is_stream = hashes, is_stream
        self.tier = tier or (lane.tiers.default if lane.tiers is not None else None)  # None: its lane has no tiers
        self.stopwatch = _stopwatch(lane, self.tier, now_s, is_stream=is_stream)
        self.state = _QUEUED
        self.queue: LaneQueue[ActiveRequest] | None = None  # where it waits
        self.ticket: Ticket[ActiveRequest] | None = None
        self.displaced_s = self.charged_tokens = 0.0  # when it first had to; and to its tier, for what it has a slot
        self.displaced_until_s: float | None = None  # set when it has to wait for another replica
        self.replica: DispatchReplica | None = None  # that has it; so far it has none
        self.turn: PrefillTurn | None = None  # in its replica's line
        self.kv_share: KvShare | None = None  # of its replica's KV cache
        self.prefill_tokens = 0  # counted at the replica until its first token comes
        self.awaits_token = self.has_answer = False  # the shell notes the second: this replica's head has come
        self.dispatched_s = self.heard_s = 0.0  # the shell notes the second: when this replica last said something
        # The shell notes that the client does not read, so the replica's silence is not its own; it has a part of the answer.
        self.is_paused = self.is_committed = False
        self.must_continue = False  # only a replica that can go on with another one's stream may take it
        self.lane_continued = False  # the last replica of its lane to fail it could have gone on with a lost stream
        self.resends = self.continuations = self.fruitless = 0  # the last: continuations without a token since
        # Replicas that have seen the request and failed it; those, and ones that could not be connected to since it last waited.
        self.tried = self.avoided = _NOBODY
        self.stale_at = self.client_name = ""  # the replica whose idle connection turned out to be closed
        self.accusations: tuple[Accusation, ...] = ()  # errors it was answered with; not decided yet whose doing
        self.bounds, self.retry_mark = bounds, retry_mark  # the second: None where its tier has no retry budget
        self.generating_s = self.bounded_by = self.workflow = self.workflow_call = self.standing = None
        self.prompt_tokens_used = self.cached_tokens_used = self.conversation = self.turn_note = None
        self.output_tokens_uncounted = 0
        # For whoever asks later why it took so long.
        self.queued_behind: int | None = None  # requests of its lane; None: it did not have to queue
        self.attempt: DispatchAttempt | None = None  # the last one
        # Why, the seconds after which it was told to come back, and those it would have waited, where that was predicted.
        self.refused: tuple[Refusal, float, float | None] | None = None
        self.rejected_status = 0  # the shell notes: with what a replica rejected it
        self.loop: Loop | None = None  # and what its answer was found to repeat

    def move(self, event: RequestEvent) -> None:
        """Change the state as the table in `state` has it. Raises IllegalTransitionError."""
        following = TRANSITIONS[self.state].get(event)
        if following is None:
            raise IllegalTransitionError(f"a request that is {self.state} cannot change by {event}")
        self.state = following

    @property
    def tpot_s(self) -> float | None:
        """The mean time per output token at its replica so far. None: it says too little, or has had several replicas."""
        return self.stopwatch.tpot_s if self.is_stream and not self.continuations and not self.is_paused else None

    def note_failure(self, failure: RequestEvent) -> None:
        """Note how its replica failed it."""
        if self.attempt is not None:
            self.attempt.failure = failure

    def avoid_replica(self, avoidance: Avoidance) -> None:
        """Go to another one after this one failed it."""
        replica = self.replica
        if replica is None:
            return
        replica_id = replica.route.id
        self.lane_continued = replica.candidate.continues and replica.route.lane == self.lane.route.name
        self.avoided |= {replica_id}
        if avoidance is Avoidance.FOR_GOOD:
            self.tried |= {replica_id}
        elif avoidance is Avoidance.WHILE_ANOTHER_IS_FREE:
            self.stale_at = replica_id

    @property
    def budget_s(self) -> float:
        """From arrival to the first token, as far as it may be planned; infinite where none is promised."""
        return self.tier.budget_s if self.tier is not None else self.lane.budget_s

    def dequeue(self) -> None:
        """Leave the queue it waits in, if it does."""
        if self.ticket is not None and self.queue is not None:
            self.queue.cancel(self.ticket)
            self.ticket = None


def _stopwatch(
    lane: DispatchLane[ActiveRequest], tier: LaneTier | None, now_s: float, *, is_stream: bool
) -> RequestStopwatch:
    is_paced = is_stream and lane.route.coalesce is not None
    found = PacedStopwatch(lane.accounts, now_s) if is_paced else RequestStopwatch(lane.accounts, now_s)
    if tier is not None and tier.limits is not None:
        found.hold_to(tier.limits)
    return found

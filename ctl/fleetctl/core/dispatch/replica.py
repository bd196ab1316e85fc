"""A replica as the dispatcher knows it: the table's row, its load, its failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.evictions.kv_record import KvRecord
from fleetctl.core.liveness import PREFILL_TOKENS_MEASURED_MIN, prefill_allowance_s
from fleetctl.core.routing.candidate import Candidate, EngineLoad
from fleetctl.core.routing.decode_limit import DecodeLimit
from fleetctl.core.routing.ejection import CONSECUTIVE_FAILURES, Ejection
from fleetctl.core.routing.kv_cache import KvCacheLoad
from fleetctl.core.routing.outlier import Pace, SlowEjection
from fleetctl.core.routing.shared_prefills import SharedPrefillLine
from fleetctl.model.allotment import NO_OTHERS
from fleetctl.model.gateway import ReplicaSnapshot

if TYPE_CHECKING:
    from fleetctl.core.slo.stopwatch import RequestStopwatch
    from fleetctl.model.gateway import ReplicaSignals, RouteReplica

# Three of the controller's scrapes, which come every 5 s (controller/probes).
SIGNAL_AGE_S_MAX = 15.0
# A slow prompt is forgotten over some ten others.
_PREFILL_DECAY = 0.9
PREFILL_ALLOWANCE_S_MAX = 3600.0  # JSON has no infinity


class DispatchReplica:
    """Lives from the first table that names it until its last request has ended."""

    __slots__ = (
        "_s_per_prefill_token", "answers", "binds_owner", "breached", "breaks", "busy_since_s", "candidate", "decodes", "ejection", "errors", "errors_in_answer", "failures",
        "good", "has_whole_requests", "heard_s", "is_stalled", "kv_record", "others", "pace", "prompt_tokens_done", "prompts_done", "requests", "retired_s", "route",
        "signals_until_s", "slots", "slow", "streams_max", "whole_answers",
    )  # fmt: skip

    def __init__(self, route: RouteReplica, now_s: float) -> None:
        self.route = route
        self.ejection = Ejection()
        self.slow = SlowEjection()
        self.pace = Pace()
        self.kv_record = KvRecord(now_s)
        self.decodes = DecodeLimit()
        self.binds_owner = True  # that limit: its own lane promises an ITL
        self.requests = self.failures = 0
        self.retired_s: float | None = None  # since when the table does not name it any more; None: it does
        self.signals_until_s = 0.0
        self.answers = 0  # first tokens and whole answers
        self.whole_answers = 0
        self.good = 0  # requests that ended here inside their SLO
        self.breached: dict[str, int] = {}  # those outside of it, by BreachKind
        self.errors: dict[int, int] = {}  # that it answered since its last answer, by client
        self.errors_in_answer: dict[int, int] = {}  # that it broke answers off with since its last whole one, by client
        self.breaks = 0  # failures in the middle of an answer, without a whole answer since
        self.slots: int | None = None  # of its streams, those that this gateway may have; None: all
        self.others = NO_OTHERS  # what other gateways have there
        self.prompts_done = self.prompt_tokens_done = 0  # with a first token
        self.busy_since_s = 0.0  # its first request since it had none
        # Of any request, when it last said something: a first token, or as of the last sweep; 0: never.
        self.heard_s = 0.0
        self.is_stalled = False  # all that it carried stood still, and it has answered nobody since
        self.has_whole_requests = False  # some of its requests are silent until they are whole, as of the last sweep
        self._s_per_prefill_token = 0.0  # the slowest lately; 0: not measured yet
        self.candidate = Candidate(
            id=route.id, in_rotation=route.in_rotation, concurrency_max=route.concurrency_max,
            lent_max=route.concurrency_max, prefill_tokens_per_s=route.prefill_tokens_per_s,
            line=SharedPrefillLine(route.prefill_tokens_per_s), kv=KvCacheLoad(route.kv_tokens),
        )  # fmt: skip
        self.apply(route, now_s)

    def apply(self, route: RouteReplica, now_s: float) -> None:
        """Take over a new row; what is in flight stays. One that comes back into rotation is asked again at once."""
        if route.lane != self.route.lane:
            # Streams of its old lane say nothing of how fast it is beside its new peers; what it carries decides anew.
            self.pace, self.binds_owner = Pace(), True
        self.route = route
        candidate = self.candidate
        if route.in_rotation and not candidate.in_rotation:
            self._readmit(now_s)
        candidate.in_rotation = route.in_rotation
        self.show_limit()
        candidate.prefill_tokens_per_s = route.prefill_tokens_per_s
        candidate.line.plan(route.prefill_tokens_per_s, max(1, route.concurrency_max))
        candidate.kv.plan(route.kv_tokens, route.kv_share)
        candidate.continues, candidate.by_priority = route.continues, route.priority_sign != 0
        candidate.node_ready = route.node_ready
        candidate.max_model_len = route.max_model_len

    def take_signals(self, signals: ReplicaSignals, now_s: float) -> None:
        """Let routing see what the engine said of itself, until it is too old. What cannot be true is not shown."""
        is_sound = signals.running >= 0 and signals.waiting >= 0
        is_sound = is_sound and (signals.kv_usage is None or 0.0 <= signals.kv_usage <= 1.0)  # NaN fails this
        self.signals_until_s = now_s + SIGNAL_AGE_S_MAX - max(0.0, signals.age_s)
        self.candidate.engine = (
            EngineLoad(running=signals.running, waiting=signals.waiting, kv_usage=signals.kv_usage)
            if is_sound and now_s < self.signals_until_s
            else None
        )
        if self.candidate.engine is not None and signals.kv_usage is not None:
            self.candidate.kv.note_usage(signals.kv_usage, now_s - max(0.0, signals.age_s))

    def expire_signals(self, now_s: float) -> None:
        """Forget figures that are too old to be decided on."""
        if self.candidate.engine is not None and now_s >= self.signals_until_s:
            self.candidate.engine = None

    def silent_s(self, now_s: float) -> float:
        """Return for how long it has had requests and said nothing of any; 0 when it has none."""
        return now_s - max(self.heard_s, self.busy_since_s) if self.candidate.in_flight else 0.0

    def note_prefill(self, tokens: int, elapsed_s: float) -> None:
        """Learn from a first token how long prompts take here."""
        self.prompts_done, self.prompt_tokens_done = self.prompts_done + 1, self.prompt_tokens_done + tokens
        if tokens >= PREFILL_TOKENS_MEASURED_MIN:
            self._s_per_prefill_token = max(elapsed_s / tokens, _PREFILL_DECAY * self._s_per_prefill_token)

    def note_gaps(
        self, *, gap_s: float, limit_s: float, missed_share: float, allowed_share: float, binds_owner: bool
    ) -> None:
        """Learn from the gaps of about a second how many streams it may have at once."""
        ceiling, in_flight = max(1, self.route.concurrency_max), self.candidate.in_flight + self.others.streams
        self.candidate.kv.s_per_token = gap_s
        self.decodes.note(
            gap_s / limit_s,
            in_flight=in_flight,
            ceiling=ceiling,
            missed_share=missed_share,
            allowed_share=allowed_share,
        )
        self.binds_owner = binds_owner
        self.show_limit()

    def show_limit(self) -> None:
        """Let routing see how many it may have: of a lane that promises no ITL only those who join others' are bounded."""
        ceiling = max(1, self.route.concurrency_max)
        lent_max, slots = self.decodes.of(ceiling), self.slots
        self.streams_max = most = lent_max if self.binds_owner else ceiling
        self.candidate.lent_max = float(lent_max if slots is None else min(lent_max, slots))
        self.candidate.concurrency_max = most if slots is None else min(most, slots)

    def eject_at_next_failure(self) -> None:
        """Take it that failures came in a row: all that it carries has stood still."""
        self.is_stalled = True
        self.ejection.failures = max(self.ejection.failures, CONSECUTIVE_FAILURES - 1)

    @property
    def prefill_allowance_s(self) -> float:
        """How much longer it may be silent over the prompts it has not answered yet."""
        candidate = self.candidate
        return prefill_allowance_s(candidate.prefill_tokens, candidate.prefill_tokens_per_s, self._s_per_prefill_token)

    def retire(self, now_s: float) -> None:
        """Take no more requests: the table names it no longer."""
        self.candidate.in_rotation, self.retired_s = False, now_s

    def _readmit(self, now_s: float) -> None:
        """End an ejection, as the controller has had an answer since; one request at a time tells whether it is right."""
        self.is_stalled = self.candidate.is_convicted = False
        self.errors.clear()
        self.errors_in_answer.clear()
        self.ejection.until_s = min(self.ejection.until_s, now_s)
        self.slow.until_s = 0.0
        self._show_ejection()

    def failed(self, now_s: float, *, in_answer: bool = False, convicts: bool = False, may_eject: bool = True) -> None:
        """Count a failure; enough in a row eject it. One in the middle of an answer no first token makes up for."""
        self.failures += 1
        self.count_failure(now_s, in_answer=in_answer, convicts=convicts, may_eject=may_eject)

    def count_failure(self, now_s: float, *, in_answer: bool, convicts: bool = False, may_eject: bool) -> None:
        """Count a failure in the row that ejects it."""
        self.candidate.is_convicted = convicts
        if in_answer:
            self.breaks += 1
            self.ejection.failures = max(self.ejection.failures, self.breaks - 1)
        self.ejection.failed(now_s, may_eject=may_eject or convicts)
        self._show_ejection()

    def answered_with_error(self, client: int, *, in_answer: bool) -> None:
        """Note an error that it answered: whose doing that is, others will tell."""
        self.failures += 1
        errors = self.errors_in_answer if in_answer else self.errors
        errors[client] = errors.get(client, 0) + 1

    def eject(self, now_s: float) -> None:
        """Leave it alone for a while: it has answered nobody."""
        self.candidate.is_convicted = False
        self.ejection.eject(now_s)
        self._show_ejection()

    def eject_slow(self, now_s: float, tpot_s: float, peers_tpot_s: float) -> None:
        """Leave it alone for a while: it is that much slower than its peers."""
        self.slow.eject(now_s, tpot_s, peers_tpot_s)
        self._show_ejection()

    def readmit_slow(self, now_s: float) -> None:
        """Send it requests again: its probes were as fast as its peers'."""
        self.slow.readmit(now_s)
        self._show_ejection()

    def _show_ejection(self) -> None:
        self.candidate.ejected_until_s = max(self.ejection.until_s, self.slow.until_s)

    def began_to_answer(self) -> None:
        """Count a first token: it works, unless it is known to break its answers off."""
        self.answers += 1
        if self.breaks < CONSECUTIVE_FAILURES:
            self._recovered()

    def answered(self) -> None:
        """Count a whole answer: whatever was wrong is over."""
        self.breaks = 0
        self.answers += 1
        self.whole_answers += 1
        self._recovered()

    def count(self, stopwatch: RequestStopwatch) -> None:
        """Count a request that has ended here as its lane did."""
        if stopwatch.is_good:
            self.good += 1
        elif stopwatch.breach is not None:
            kind = stopwatch.breach.value
            self.breached[kind] = self.breached.get(kind, 0) + 1

    def _recovered(self) -> None:
        ejection = self.ejection
        if ejection.failures or ejection.until_s > 0.0:
            self.is_stalled = self.candidate.is_convicted = False
            ejection.answered()
            self._show_ejection()

    def snapshot(self, now_s: float) -> ReplicaSnapshot:
        """Return its figures."""
        has_errors, prompts = self.errors or self.errors_in_answer, self.candidate.prefill_tokens
        return ReplicaSnapshot(
            id=self.route.id,
            in_flight=self.candidate.in_flight,
            failures=self.failures,
            consecutive_failures=self.ejection.failures,
            errors_in_a_row=sum(self.errors.values()) + sum(self.errors_in_answer.values()) if has_errors else 0,
            is_stalled=self.is_stalled,
            silent_s=self.silent_s(now_s),
            unheard_s=now_s - self.heard_s if self.heard_s else None,
            slowness=self.slow.slowness(now_s) if self.slow.until_s else None,
            streams_max=self.streams_max,
            good=self.good,
            breached=dict(self.breached) if self.breached else {},
            prefill_allowance_s=min(PREFILL_ALLOWANCE_S_MAX, self.prefill_allowance_s) if prompts else 0.0,
        )

"""Decides for every request who gets it when, what follows when a replica fails it, and how it ends.

Time, timers, chance and everything that moves bytes are passed in, so the same object runs in the gateway and under an
event heap. The shell reports what happens, by the methods of the first part; the dispatcher acts through the
request's ExchangePort. What may follow on what is the table in `state`; what a failure means is the one in `failure`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.admission.admit import Admission, admit
from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.dispatch.assignment import Assignment
from fleetctl.core.dispatch.attribution import ErrorAttribution
from fleetctl.core.dispatch.decode_watch import DecodeWatch
from fleetctl.core.dispatch.early_end import EarlyEnds
from fleetctl.core.dispatch.endings import Endings
from fleetctl.core.dispatch.eviction_watch import EvictionWatch
from fleetctl.core.dispatch.failover import could_continue, is_held_elsewhere
from fleetctl.core.dispatch.failure import CONSEQUENCES, Consequence, Retry
from fleetctl.core.dispatch.kv_watch import KvWatch
from fleetctl.core.dispatch.outliers import OutlierDetector
from fleetctl.core.dispatch.ports import Resumption
from fleetctl.core.dispatch.routes import RoutingState
from fleetctl.core.dispatch.sharing import Sharing
from fleetctl.core.dispatch.silence import note_heard, silence
from fleetctl.core.dispatch.state import RequestEvent, RequestState
from fleetctl.core.dispatch.tiered import TieredAdmission
from fleetctl.core.liveness import UNHEALTHY_SILENT_S
from fleetctl.core.slo.endings import Ending

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.core.dispatch.limits import DispatchLimits
    from fleetctl.core.dispatch.ports import WakeAt
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.random_source import RandomSource
    from fleetctl.model.gateway import RoutingTable, SignalFeed

# Looked up for every request, and an enum's members are slow to look up.
_CONNECTED, _PASSED_ON, _ANSWERED = RequestEvent.CONNECTED, RequestEvent.PASSED_ON, RequestEvent.ANSWERED


class Dispatcher:
    """Every request passes `submit` once, and its exchange's `over` is called once."""

    def __init__(self, clock: Callable[[], float], wake_at: WakeAt, rng: RandomSource, limits: DispatchLimits) -> None:
        self.clock = clock
        self.routes = RoutingState(rng)
        self.endings = Endings(clock, self.routes.ratio)
        self._assignment = Assignment(clock, wake_at, self.routes, self.endings, limits)
        self._tiered = TieredAdmission(self.routes, self._assignment, self.endings)
        self.early = EarlyEnds(self._assignment, self.endings)
        self._limits, self._errors = limits, ErrorAttribution()
        self._outliers, self._decodes = OutlierDetector(self.routes), DecodeWatch(self.routes)
        self.sharing = Sharing(self.routes, self._assignment.dispatch_queued)
        self._kv, self.evictions = KvWatch(), EvictionWatch(self.routes, self.endings)

    @property
    def is_idle(self) -> bool:
        """Whether no request is at a replica or waits."""
        return not self.endings.active and all(lane.is_idle for lane in self.routes.lanes.values())

    # What the shell reports.

    def apply(self, table: RoutingTable) -> None:
        """Replace the routing table; those who wait go to whoever is there now."""
        self.routes.apply(table, self.clock())
        self.sharing.apply(self.clock())
        self.evictions.apply(table)
        for lane in list(self.routes.lanes.values()):
            for ticket in lane.displaced.tickets():
                if ticket.item.must_continue and not could_continue(ticket.item):
                    self.endings.break_stream(ticket.item, RequestEvent.GIVEN_UP)
            if lane.displaced:
                self._assignment.extend_waits(lane)
            self._assignment.dispatch_queued(lane)

    def take_signals(self, feed: SignalFeed) -> None:
        """Let routing see what engines said of themselves."""
        self.evictions.take_signals(feed, self.clock())

    def submit(self, request: ActiveRequest) -> None:
        """Dispatch, queue or refuse a request that arrives now."""
        now_s = request.stopwatch.started_s
        lane = request.lane
        degradation = lane.degradation
        lane.arrived(request.client, now_s, is_again=request.retry_mark is not None and request.retry_mark.is_declared)
        self.routes.note_demand(request, now_s)
        if lane.tiers is not None:
            self._tiered.submit(request, lane.tiers, now_s)
            return
        # A queue is never jumped, and a held lane dispatches nothing.
        found = None if lane.queue.size or degradation.holds_queue else self.routes.pick(request, now_s)
        if found is not None and lane.always_takes_slot:
            self._assignment.dispatch(request, found, now_s)
            return
        is_probe = degradation.breaks and lane.probe.lets_through(now_s)
        late_s = None if found is not None else self.routes.late_s(request, now_s)
        load = lane.load(has_slot=found is not None, late_s=late_s)
        answer = admit(load, degradation, prompt_tokens=request.prompt.prompt_tokens, is_probe=is_probe)
        if answer is Admission.DISPATCH and found is not None:
            self._assignment.dispatch(request, found, now_s)
        elif isinstance(answer, Refusal):
            self.endings.refuse(request, answer, RequestEvent.REFUSED, predicted_s=load.wait_s)
        else:
            request.queued_behind = lane.queue.size
            self._assignment.enqueue(request, now_s, is_late=late_s is not None)

    def connected(self, request: ActiveRequest) -> None:
        """Note that a request is being written to its replica."""
        request.move(_CONNECTED)

    def passed_on(self, request: ActiveRequest) -> None:
        """Note that the client gets the first bytes of what this replica answers."""
        request.move(_PASSED_ON)
        request.is_committed = True

    def first_token(self, request: ActiveRequest, now_s: float) -> None:
        """Note the first content event of this replica: its prefill is done."""
        request.awaits_token = False
        request.generating_s = request.generating_s or now_s
        request.fruitless = 0
        request.displaced_until_s = None
        replica = request.replica
        if replica is not None:
            self._assignment.prompt_done(request, replica, now_s)
            replica.began_to_answer()
            if self._errors.clients:
                self._errors.note_answer(request, self.routes, now_s, is_whole=False)
            self._assignment.pass_on_room(replica)

    def answered(self, request: ActiveRequest, ending: Ending) -> None:
        """End a request whose client has been given a replica's whole answer."""
        if self._errors.clients and ending is Ending.COMPLETE:
            self._errors.note_answer(request, self.routes, self.clock(), is_whole=True)
        replica = request.replica
        self._assignment.release(request, failed=False)
        self.endings.finish(request, _ANSWERED, ending)
        if replica is not None:
            replica.count(request.stopwatch)

    def client_gone(self, request: ActiveRequest) -> None:
        """End a request that nobody waits for any more."""
        if request.state is not RequestState.OVER:
            request.exchange.cancel()
            self._assignment.release(request, failed=False)
            self.endings.finish(request, RequestEvent.CLIENT_GONE, Ending.CANCELLED)

    def exceeds_context(self, request: ActiveRequest) -> bool:
        """Send a request elsewhere whose replica answers that it is malformed, which may mean too long.

        Engines say so in words of their own, so it goes by figures: the request may be longer than the replica holds,
        and another one holds more. False: neither is so, and the replica's answer is the client's.
        """
        replica = request.replica
        held = replica.candidate.max_model_len if replica is not None else 0
        if not held or request.tokens.most <= held or not is_held_elsewhere(self.routes, request, held):
            return False
        request.needed_tokens = max(request.needed_tokens, held + 1)
        request.has_answer = False  # it has taken no time that says anything about the next one's
        self.failed(request, RequestEvent.TOO_LONG)
        return True

    def failed(self, request: ActiveRequest, failure: RequestEvent) -> None:
        """Send a request elsewhere, let it wait for another replica, or end it, after its replica failed it."""
        consequence = CONSEQUENCES[failure]
        request.move(failure)
        request.note_failure(failure)
        if consequence.is_answer:
            self._errors.note_error(request, self.routes, self.clock())
        request.avoid_replica(consequence.avoids)
        self._assignment.release(request, failed=consequence.counts, convicts=consequence.convicts)
        if consequence.retry is Retry.FREELY:
            self._assignment.place(request)
        elif request.is_committed:
            self._continue(request, consequence)
        elif not self._limits.let_move(request, may_be_death=consequence.may_be_death):
            self.endings.give_up(request, failure)
        else:
            self._resend(request, failure, consequence)

    # After a failure.

    def _resend(self, request: ActiveRequest, failure: RequestEvent, consequence: Consequence) -> None:
        """Ask one more replica, while the budget lasts: the request may be what makes them fail."""
        request.generating_s = None  # its answer begins anew
        if consequence.retry is Retry.NOW_OR_LATER:
            request.resends += 1
            self._assignment.place(request)
            return
        now_s = self.clock()
        if consequence.retry is Retry.TO_A_FREE_SLOT:
            found = self.routes.pick(request, now_s)
        else:
            found = self._assignment.pick_displaced(request, now_s)
        if found is None or not self._errors.may_retry(request, consequence, now_s):
            self.endings.give_up(request, failure)
        else:
            request.resends += 1
            self._assignment.dispatch(request, found, now_s)

    def _continue(self, request: ActiveRequest, consequence: Consequence) -> None:
        """Go on elsewhere with an answer the client has part of, where that is lawful and some replica ever could."""
        may_continue = self._limits.let_move(request) and could_continue(request)
        may_continue = may_continue and self._errors.may_retry(request, consequence, self.clock())
        resumption = request.exchange.resumption(may_continue=may_continue)
        if resumption is Resumption.ONLY_END_MISSING:
            request.exchange.end_stream()
            self.endings.finish(request, RequestEvent.ANSWERED, Ending.COMPLETE)
        elif resumption is Resumption.UNLAWFUL:
            self.endings.break_stream(request, RequestEvent.GIVEN_UP)
        else:
            request.continuations += 1
            request.fruitless += 1
            request.must_continue = True
            self._assignment.place(request)

    # Time passes.

    def sweep(self, now_s: float) -> None:
        """Check everything that has a slow deadline: silent streams, long requests, replicas to be probed."""
        table = self.routes.table
        if table is None:
            return
        active = list(self.endings.active)
        note_heard(active, self.routes.replicas.values(), now_s)
        self._outliers.check(active, now_s)
        self._decodes.check(active, now_s)
        self._kv.check(active, self.routes.replicas.values(), now_s)
        self.sharing.sweep(now_s)
        silent_s_min = min(UNHEALTHY_SILENT_S, table.stall_timeout_s)
        for request in active:
            self._check(request, now_s, table, silent_s_min)
        for lane in list(self.routes.lanes.values()):
            self._assignment.sweep(lane, now_s)

    def _check(self, request: ActiveRequest, now_s: float, table: RoutingTable, silent_s_min: float) -> None:
        """Count what is late, and end what takes too long at a replica. The time in a queue is the lane's to bound."""
        request.stopwatch.check(now_s, is_stream=request.is_stream)
        if self.early.check(request, now_s, table.request_timeout_s) or request.replica is None:
            return
        if not request.is_paused and now_s - request.heard_s > silent_s_min:
            may_move = self._limits.let_move(request)
            failure = silence(request, request.replica, self.routes, now_s, may_move=may_move)
            if failure is not None:
                request.exchange.cancel()
                self.failed(request, failure)

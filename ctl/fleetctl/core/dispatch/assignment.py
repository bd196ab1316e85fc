"""Moves requests between the queues and the replicas' slots."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fleetctl.core.dispatch.attempt import DispatchAttempt
from fleetctl.core.dispatch.failover import recovered
from fleetctl.core.dispatch.kv_watch import to_come
from fleetctl.core.dispatch.queue_service import QueueService
from fleetctl.core.dispatch.state import RequestEvent
from fleetctl.core.dispatch.tier_notes import engine_rank, note_dispatch, note_release

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.core.dispatch.endings import Endings
    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.limits import DispatchLimits
    from fleetctl.core.dispatch.ports import WakeAt
    from fleetctl.core.dispatch.replica import DispatchReplica
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.dispatch.routes import RoutingState
    from fleetctl.core.routing.candidate import Candidate

_DISPATCHED = RequestEvent.DISPATCHED


class Assignment:
    """Takes a slot with `dispatch` and gives it back with `release`; in between a request waits in one queue at most."""

    def __init__(
        self,
        clock: Callable[[], float],
        wake_at: WakeAt,
        routes: RoutingState,
        endings: Endings,
        limits: DispatchLimits,
    ) -> None:
        self._clock = clock
        self._wake_at = wake_at
        self._routes = routes
        self._endings = endings
        self._limits = limits
        self._service = QueueService(clock, routes, endings, self.dispatch)
        # Whether anybody may wait in some lane: most of the time nobody does, and nobody has to be looked for.
        self._may_wait = False

    # Slots.

    def dispatch(self, request: ActiveRequest, candidate: Candidate, now_s: float) -> None:
        """Give the request a slot of this replica, and send it there."""
        replica = self._routes.replicas[candidate.id]
        if request.hashes and replica.route.caches_prefixes:
            self._routes.prefixes.record(request.hashes, candidate.id)
        self._endings.active[request] = None
        request.move(_DISPATCHED)
        request.replica = replica
        tokens = request.prefill_tokens = request.prompt.uncached(candidate.id)
        request.awaits_token, request.has_answer = True, False
        request.dispatched_s = request.heard_s = now_s
        line, kv, beside = candidate.line, candidate.kv, candidate.in_flight
        ahead = candidate.prefill_tokens = candidate.prefill_tokens + tokens
        request.turn = line.join(tokens, now_s, is_heard=request.is_stream, rank=engine_rank(request, now_s))
        request.attempt = DispatchAttempt(
            request.attempt, candidate.id, now_s, line.count, ahead, tokens, beside, line.free_s, kv.free_tokens
        )
        made = request.stopwatch.token_count if request.is_committed else 0
        request.kv_share = kv.join(tokens + made, to_come(request, made))
        if not beside:
            replica.busy_since_s = now_s
        candidate.in_flight = beside + 1
        line.carries(beside + 1)
        replica.requests += 1
        lane = request.lane
        if not lane.in_flight:
            lane.departures.began(now_s)
        lane.in_flight += 1
        if request.tier is not None:
            note_dispatch(request, now_s)
        request.stopwatch.dispatched(now_s, candidate.id)
        request.exchange.send(candidate.id)

    def prompt_done(self, request: ActiveRequest, replica: DispatchReplica, now_s: float) -> None:
        """Note that the replica has computed a request's prompt: its first token is there."""
        replica.note_prefill(request.prefill_tokens, now_s - request.dispatched_s)
        replica.heard_s = now_s
        replica.candidate.prefill_tokens -= request.prefill_tokens
        request.prefill_tokens = 0
        if request.turn is not None:
            replica.candidate.line.done(request.turn, now_s)
            request.turn = None

    def release(self, request: ActiveRequest, *, failed: bool, convicts: bool = False) -> None:
        """Give the replica's slot back, if it has one, and pass it to who waits for it."""
        replica, request.replica = request.replica, None
        if replica is None:
            return
        now_s = self._clock()
        candidate, lane = replica.candidate, request.lane
        candidate.in_flight -= 1
        candidate.prefill_tokens -= request.prefill_tokens
        request.prefill_tokens = 0
        if request.kv_share is not None:
            candidate.kv.leave(request.kv_share)
            request.kv_share = None
        turn, request.turn = request.turn, None
        if turn is not None and request.has_answer:
            candidate.line.done(turn, now_s, is_first_token=False)
        elif turn is not None:
            candidate.line.leave(turn, now_s)
        candidate.line.carries(candidate.in_flight)
        lane.in_flight -= 1
        if request.tier is not None:
            note_release(request, now_s)
        if failed:
            may_eject = convicts or self._routes.may_eject(replica)
            replica.failed(now_s, in_answer=not request.awaits_token, convicts=convicts, may_eject=may_eject)
        elif request.has_answer:
            replica.heard_s = now_s
            replica.answered()
            tpot_s = request.tpot_s
            if tpot_s is not None and request.dispatched_s >= replica.slow.until_s:
                replica.pace.add(now_s, tpot_s, missed=request.stopwatch.has_missed)
            lane.service.finished(now_s - request.dispatched_s)
            lane.answers.finished(request.stopwatch.token_count + request.output_tokens_uncounted)
            lane.departures.finished(now_s)
            if replica.route.lane != lane.route.name:
                missed = request.stopwatch.has_missed
                lane.note_borrowed(replica.route.lane, now_s, sent_s=request.dispatched_s, missed=missed)
        self.pass_on_room(replica)

    def pass_on_room(self, replica: DispatchReplica) -> None:
        """Give what has become free at a replica to those who wait for it, its own lane's first."""
        if not self._may_wait:
            return
        for lane in self._routes.served_by.get(replica.route.lane, ()):
            if lane.has_queued:
                self.dispatch_queued(lane)
        self._may_wait = any(lane.has_queued for lane in self._routes.lanes.values())

    # Queues.

    def enqueue(self, request: ActiveRequest, now_s: float, *, is_late: bool = False) -> None:
        """Let a new request wait at the end of its lane's queue, which has room, or of those who cannot be in time."""
        lane = request.lane
        self._may_wait = True
        # Those held for the first replica are late: whoever can still be in time goes first once it is there.
        request.queue = lane.late if is_late or lane.holds_from_zero else lane.queue
        wait_s = lane.max_wait_s
        request.ticket = request.queue.offer(request, now_s=now_s, wait_max_s=wait_s)
        self._wake(lane, now_s + wait_s)
        self._wake_as_opens(lane)

    def place(self, request: ActiveRequest) -> None:
        """Send a displaced request to another replica, over its slot limit if need be, or let it wait for one."""
        now_s = self._clock()
        found = self.pick_displaced(request, now_s)
        if found is None and request.stale_at:
            # Nobody else can take it. Its idle connections have been dropped, so a fresh one will tell what is wrong.
            request.avoided -= {request.stale_at}
            found = self.pick_displaced(request, now_s)
        request.stale_at = ""
        if found is not None:
            self.dispatch(request, found, now_s)
        else:
            self._await_replica(request, now_s)

    def pick_displaced(self, request: ActiveRequest, now_s: float) -> Candidate | None:
        """Return a replica with a free slot, else one whose engine may queue the request. None: there is none now."""
        return self._routes.pick(request, now_s) or self._routes.pick(request, now_s, beyond_limit=True)

    def _await_replica(self, request: ActiveRequest, now_s: float) -> None:
        # Those that could not be reached may be back by then.
        request.avoided = request.tried
        lane = request.lane
        if request.displaced_until_s is None:
            request.displaced_s = now_s
            request.displaced_until_s = now_s + self._limits.displaced_max_wait_s(request)
        wait_s = request.displaced_until_s - now_s
        if wait_s <= 0.0:
            self._endings.expire(request)
            return
        self._may_wait = True
        request.queue = lane.displaced
        request.ticket = lane.displaced.requeue(request, now_s=now_s, wait_max_s=wait_s)
        self._wake(lane, request.ticket.deadline_s)

    def extend_waits(self, lane: DispatchLane[ActiveRequest]) -> None:
        """Let displaced requests wait for a replacement that has been announced since they began to wait."""
        for ticket in lane.displaced.tickets():
            request = ticket.item
            until_s = request.displaced_s + self._limits.displaced_max_wait_s(request)
            ticket.deadline_s = max(ticket.deadline_s, until_s)
            request.displaced_until_s = ticket.deadline_s

    def sweep(self, lane: DispatchLane[ActiveRequest], now_s: float) -> None:
        """Count those who wait that are late, and dispatch whom something has come free for that wakes nobody by itself."""
        lane.accounts.fold(now_s)
        for ticket in (*lane.queue.tickets(), *lane.late.tickets()):
            ticket.item.stopwatch.check(now_s, is_stream=ticket.item.is_stream)
        # An ejection that ends is such a thing.
        self.dispatch_queued(lane)

    def dispatch_queued(self, lane: DispatchLane[ActiveRequest]) -> None:
        """Dispatch those who wait, the displaced first, for as long as there are slots."""
        if lane.displaced:
            self._dispatch_displaced(lane)
        if lane.degradation.holds_queue:
            return
        if self._service.serve(lane, lane.queue) and lane.late.size:
            self._service.serve(lane, lane.late)
        self._wake_as_opens(lane)

    def _wake_as_opens(self, lane: DispatchLane[ActiveRequest]) -> None:
        """Look again as soon as an engine is no longer kept for a higher tier: nothing else tells of it."""
        if lane.tiers is not None and lane.has_queued and self._clock() < lane.tiers.opens_s:
            self._wake(lane, lane.tiers.opens_s)

    def _dispatch_displaced(self, lane: DispatchLane[ActiveRequest]) -> None:
        for ticket in lane.displaced.tickets():
            request, now_s = ticket.item, self._clock()
            request.avoided -= recovered(self._routes, request)
            found = self._routes.pick(request, now_s, beyond_limit=True)
            if found is not None:
                request.dequeue()
                self.dispatch(request, found, now_s)

    # Deadlines.

    def _wake(self, lane: DispatchLane[ActiveRequest], at_s: float) -> None:
        if lane.wakeup is None or lane.wake_at_s > at_s:
            if lane.wakeup is not None:
                lane.wakeup.cancel()
            lane.wake_at_s = at_s
            lane.wakeup = self._wake_at(at_s, partial(self._expire, lane))

    def _expire(self, lane: DispatchLane[ActiveRequest]) -> None:
        lane.wakeup = None
        now_s = self._clock()
        for queue in (lane.displaced, lane.queue, lane.late):
            for request in queue.expire(now_s):
                request.ticket = None
                self._endings.expire(request)
        if lane.tiers is not None and lane.tiers.opens_s <= now_s:
            self.dispatch_queued(lane)
        at_s = lane.next_deadline_s()
        if at_s is not None:
            self._wake(lane, at_s)

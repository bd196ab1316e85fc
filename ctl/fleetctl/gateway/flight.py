"""One request's life: waiting, asking a replica, perhaps another, and being answered."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.slo.breach import Ending
from fleetctl.gateway import continuation, wire
from fleetctl.gateway.answer import Answer
from fleetctl.gateway.degrade import degrade
from fleetctl.gateway.relay import Fault, truncated
from fleetctl.gateway.upstream import UpstreamConnection

if TYPE_CHECKING:
    from fleetctl.core.admission.queue import LaneQueue, Ticket
    from fleetctl.core.routing.candidate import PromptLoad
    from fleetctl.gateway.classify import Ask
    from fleetctl.gateway.client import ClientConnection
    from fleetctl.gateway.dispatch import Dispatcher
    from fleetctl.gateway.lanes import LaneRuntime
    from fleetctl.gateway.replicas import ReplicaRuntime
    from fleetctl.gateway.requests import Request
    from fleetctl.model.gateway import RoutingTable

_log = logging.getLogger("fleetctl.gateway")

CHAT_PATH = b"/v1/chat/completions"
# Answers of a replica that say: not here, not now.
_BUSY = frozenset((429, 503))
_REFUSING = _BUSY | {500, 502, 504}
# A reused connection closed this soon after it was written to was already closing: the replica saw nothing.
_STALE_S = 0.25


class Flight:
    """Is the Receiver of its replica's response, and of the next one's. Every way out passes `_leave`, once."""

    __slots__ = (
        "_ask", "_body", "_client", "_connecting", "_continuations", "_dispatched_s", "_dispatcher", "_first_body",
        "_heard_s", "_is_over", "_prefill_tokens", "_replica", "_request", "_resends", "_tried", "_upstream",
        "answer", "hashes", "lane", "line", "needs_continuing", "orphan_deadline_s", "prompt", "ticket", "unreached",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913  # the seven things a request is known by
        self,
        dispatcher: Dispatcher,
        client: ClientConnection,
        request: Request,
        *,
        ask: Ask,
        lane: LaneRuntime,
        prompt: PromptLoad,
        hashes: list[int],
    ) -> None:
        self._dispatcher = dispatcher
        self._client = client
        self._request = request
        self._ask = ask
        self.lane = lane
        self.prompt = prompt
        self.hashes = hashes
        self.answer = Answer(
            client,
            lane,
            dispatcher.clock,
            dispatcher.limits,
            stream=ask.stream,
            prompt_tokens_estimate=prompt.prompt_tokens,
        )
        self._first_body, self.answer.degraded = degrade(request.body, lane.effects)
        self._body = self._first_body
        # Waiting.
        self.line: LaneQueue[Flight] | None = None
        self.ticket: Ticket[Flight] | None = None
        self.orphan_deadline_s: float | None = None
        self.unreached: set[str] = set()  # replicas that could not be connected to in this round
        self._tried: set[str] = set()  # replicas that have seen the request and failed it
        self.needs_continuing = False
        # Asking.
        self._replica: ReplicaRuntime | None = None
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._prefill_tokens = 0
        self._dispatched_s = 0.0
        self._heard_s = 0.0
        self._resends = 0
        self._continuations = 0
        self._is_over = False

    @property
    def avoided(self) -> set[str]:
        """Replicas not to be asked."""
        return self._tried | self.unreached if self.unreached else self._tried

    # Asking.

    def dispatch(self, replica: ReplicaRuntime, now_s: float) -> None:
        """Go to a replica; a slot of it is this flight's until `_release`."""
        self._replica = replica
        candidate = replica.candidate
        self._prefill_tokens = self.prompt.uncached(candidate.id)
        candidate.prefill_tokens += self._prefill_tokens
        candidate.in_flight += 1
        replica.requests += 1
        self.lane.in_flight += 1
        self._dispatched_s = self._heard_s = now_s
        answer = self.answer
        answer.replica_id = candidate.id.encode()
        if answer.wait_s is None:
            answer.wait_s = now_s - answer.started_s
            self.lane.accounts.dispatched(now_s, answer.wait_s)
        connection = replica.pool.take()
        if connection is not None:
            self._send(replica, connection)
        else:
            self._connecting = asyncio.get_running_loop().create_task(self._connect(replica))

    async def _connect(self, replica: ReplicaRuntime) -> None:
        route = replica.route
        make = partial(UpstreamConnection, replica.pool, self._dispatcher.clock)
        try:
            async with asyncio.timeout(self._dispatcher.limits.connect_timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(make, route.host, route.port)
        except (OSError, TimeoutError) as exc:
            self._connecting = None
            _log.info(
                "replica %s at %s:%d: %s", route.id, route.host, route.port, str(exc) or "connecting took too long"
            )
            # It has not seen the request, so asking the others costs nothing; their number bounds it.
            self.unreached.add(route.id)
            self._release(failed=True)
            self._dispatcher.place_orphan(self)
            return
        self._connecting = None
        self._send(replica, connection)

    def _send(self, replica: ReplicaRuntime, connection: UpstreamConnection) -> None:
        self._upstream = connection
        request = self._request
        head = b"POST %b%bcontent-length: %d\r\n%b\r\n" % (
            request.target, replica.request_head, len(self._body), request.forwarded
        )  # fmt: skip
        connection.begin(self, head, self._body)
        if self._client.is_behind:
            connection.pause()

    # Receiver: what the replica answers.

    def head(self, status: int, headers: list[wire.Header]) -> None:
        """Take the head."""
        self.answer.begin(status, headers, keeps_transcript=self._dispatcher.keeps_transcripts)

    def body(self, data: bytes, now_s: float) -> None:
        """Pass on, or hold back, a piece of the answer."""
        self._heard_s = now_s
        answer = self.answer
        if answer.relay is None or answer.status != 200:
            answer.hold(data)
            return
        fault = answer.events(answer.relay, data, now_s)
        if self._prefill_tokens and answer.ttft_s is not None:
            self._prefilled(now_s)
        if fault is not None:
            self._faulted(fault)

    def complete(self) -> None:
        """Finish: the replica has said everything."""
        self._upstream = None
        answer = self.answer
        if answer.relay is not None and answer.status == 200:
            if answer.relay.is_finished:
                self._release()
                answer.end_pieces(Ending.COMPLETE)
                self._leave()
            else:
                self._faulted(truncated())
        elif answer.is_committed and answer.relay is not None:
            self._lost_stream(truncated(), failed=answer.status in _REFUSING)  # It would not go on with the stream.
        elif answer.is_committed:
            self._release()
            answer.end_pieces(Ending.COMPLETE)
            self._leave()
        elif answer.status in _REFUSING:
            self._refused_by_replica(answer.headers, answer.held())
        else:
            self._release()
            answer.whole(answer.status, answer.headers, answer.held())
            self._leave()

    def lost(self, *, answered: bool, reused: bool) -> None:
        """Ask another replica, or go on there, or end honestly."""
        self._upstream = None
        if self.answer.is_committed:
            self._lost_stream(truncated(), failed=True)
        elif reused and not answered and self._dispatcher.clock() - self._dispatched_s < _STALE_S:
            self._resend("the replica closed the connection before it answered", failed=False)
        else:
            self._resend("the replica closed the connection before it answered", failed=True)

    def _prefilled(self, now_s: float) -> None:
        replica = self._replica
        if replica is not None:
            replica.candidate.prefill_tokens -= self._prefill_tokens
            self._prefill_tokens = 0
            replica.answered()
            replica.ttft.open_cell(now_s).add(now_s - self._dispatched_s)

    def _learn(self) -> None:
        usage = self.answer.usage
        if usage is not None and not self._continuations:
            self._dispatcher.ratio.learn(prompt_bytes=len(self._ask.prompt), prompt_tokens=usage.prompt_tokens)

    # When a replica fails.

    def _faulted(self, fault: Fault) -> None:
        """Act on an error event, or on an end that is none."""
        self._break_off()
        headers, body = [wire.JSON], msgspec.json.encode(fault.error)
        if self.answer.is_committed:
            self._lost_stream(fault, failed=True)
        elif fault.status in _REFUSING:
            self.answer.status = fault.status
            self._refused_by_replica(headers, body)
        else:
            self._release()
            self.answer.whole(fault.status, headers, body)
            self._leave()

    def _refused_by_replica(self, headers: list[wire.Header], body: bytes) -> None:
        """Pass over a replica that will not, once; then it is the lane that will not."""
        status = self.answer.status
        self._avoid()
        may_resend = self._resends < self._dispatcher.limits.resends_max
        self._release(failed=True)
        if may_resend and self._dispatcher.has_alternative(self, beyond_limit=status not in _BUSY):
            self._resends += 1
            self._dispatcher.place_orphan(self)
        elif status in _BUSY:
            self.refuse(Refusal.ENGINES_BUSY)
        else:
            self.answer.whole(status, headers, body)
            self._leave()

    def _resend(self, message: str, *, failed: bool, status: int = 502) -> None:
        """Send the request to one more replica. Two losing it is enough: it may be what kills them."""
        if failed:
            self._avoid()
        self._release(failed=failed)
        if self._resends >= self._dispatcher.limits.resends_max:
            self.answer.fail(status, message, Ending.TIMEOUT if status == 504 else Ending.ERROR)
            self._leave()
        else:
            self._resends += 1
            self._dispatcher.place_orphan(self)

    def _lost_stream(self, fault: Fault, *, failed: bool) -> None:
        """Go on elsewhere with an answer the client has part of, where that is lawful."""
        answer = self.answer
        self._avoid()
        self._release(failed=failed)
        relay = answer.relay
        if relay is not None and relay.is_finished:
            answer.end_pieces(Ending.COMPLETE, wire.DONE_EVENT)
            self._leave()
            return
        resumed = self._continuation()
        if relay is None or resumed is None:
            answer.break_pieces(fault.error, Ending.INCOMPLETE)
            self._leave()
        elif resumed.body is None:
            answer.end_pieces(Ending.COMPLETE, resumed.splicer.end())
            self._leave()
        else:
            self._continuations += 1
            self._body = resumed.body
            self.needs_continuing = True
            relay.restart(resumed.splicer)
            self._dispatcher.place_orphan(self)

    def _continuation(self) -> continuation.Continuation | None:
        relay = self.answer.relay
        if relay is None or self._continuations >= self._dispatcher.limits.continuations_max:
            return None
        is_chat = self._request.path == CHAT_PATH
        try:
            return continuation.plan(self._first_body, relay.transcript, tokens=relay.tokens, is_chat=is_chat)
        except (msgspec.DecodeError, AttributeError, TypeError, KeyError) as exc:
            # What a replica streamed is not ours to trust; an odd shape means only that nobody can go on with it.
            _log.warning("a lost stream cannot be continued: %r", exc)
            return None

    # Ways out.

    def refuse(self, refusal: Refusal) -> None:
        """End with a refusal."""
        self.answer.refuse(refusal, retry_after_s=self.lane.retry_after_s(self._dispatcher.rng))
        self._leave()

    def waited_too_long(self) -> None:
        """End: the deadline in the line has come."""
        if self.answer.is_committed:
            error = wire.error_object("no replica could go on with the stream", kind="server_error", code=503)
            self.answer.break_pieces(error, Ending.INCOMPLETE)
            self._leave()
        elif self.lane.has_replica and self.orphan_deadline_s is None:
            self.refuse(Refusal.MAX_WAIT)
        else:
            self.refuse(Refusal.NO_REPLICA)

    def client_gone(self) -> None:
        """End: nobody is there to answer. The replica learns it at once."""
        if not self._is_over:
            self._break_off()
            self._release()
            self.answer.abandoned()
            self._leave()

    def client_behind(self) -> None:
        """Stop reading from the replica."""
        if self._upstream is not None:
            self._upstream.pause()

    def client_ready(self) -> None:
        """Read on."""
        self._heard_s = self._dispatcher.clock()
        if self._upstream is not None:
            self._upstream.resume()

    def check(self, now_s: float, table: RoutingTable) -> None:
        """End what takes too long. The time in the line is the lane's to bound, not the request timeout's."""
        answer = self.answer
        if self._replica is None:
            return
        if now_s - self._dispatched_s > table.request_timeout_s:
            self._timed_out("the request took too long")
        elif self._upstream is None or not answer.stream or self._client.is_behind:
            return  # A whole answer is silent until it is there.
        elif now_s - self._heard_s > table.stall_timeout_s:
            self._break_off()
            if answer.is_committed:
                self._lost_stream(truncated(), failed=True)
            else:
                self._resend("the replica stalled", failed=True, status=504)

    def _timed_out(self, message: str) -> None:
        self._break_off()
        self._release()
        if self.answer.is_committed:
            self.answer.break_pieces(wire.error_object(message, kind="timeout_error", code=504), Ending.TIMEOUT)
        else:
            self.answer.fail(504, message, Ending.TIMEOUT)
        self._leave()

    def _avoid(self) -> None:
        if self._replica is not None:
            self._tried.add(self._replica.route.id)

    def _break_off(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._upstream is not None:
            self._upstream.cancel()
            self._upstream = None

    def _release(self, *, failed: bool = False) -> None:
        """Give the replica's slot back."""
        replica, self._replica = self._replica, None
        if replica is None:
            return
        now_s = self._dispatcher.clock()
        replica.candidate.in_flight -= 1
        replica.candidate.prefill_tokens -= self._prefill_tokens
        self._prefill_tokens = 0
        self.lane.in_flight -= 1
        if failed:
            replica.failed(now_s)
        elif self.answer.status:
            replica.answered()
            self.lane.service.finished(now_s - self._dispatched_s)
        self._dispatcher.released(replica)

    def _leave(self) -> None:
        self._is_over = True
        self._learn()
        self._dispatcher.leave_line(self)
        self._dispatcher.flights.discard(self)
        self._client.answered()

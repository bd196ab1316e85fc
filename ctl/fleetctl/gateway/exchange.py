"""One request's bytes: from its client to a replica, perhaps to another one; the way back is in `answer`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from fleetctl.core.dispatch.request import ActiveRequest
from fleetctl.core.dispatch.state import RequestEvent
from fleetctl.core.slo.paced import PacedStopwatch
from fleetctl.gateway import wire
from fleetctl.gateway.answer import ReceivedAnswer
from fleetctl.gateway.conversation import conversation_of
from fleetctl.gateway.degrade import degrade, renamed
from fleetctl.gateway.early_end import last_events
from fleetctl.gateway.pacer import StreamPacer
from fleetctl.gateway.priorities import with_priority
from fleetctl.gateway.request_form import spelt
from fleetctl.gateway.request_ids import REQUEST_ID, TRACEPARENT
from fleetctl.gateway.usage import Usage, asking_for_counts, shown_usage
from fleetctl.model.generation import LoopAction

if TYPE_CHECKING:
    from fleetctl.core.admission.refusal import Refusal
    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.ports import Resumption
    from fleetctl.gateway.client import ClientConnection
    from fleetctl.gateway.limits import GatewayLimits
    from fleetctl.gateway.measure import MeasuredRequest
    from fleetctl.gateway.requests import Request
    from fleetctl.gateway.traces import EndedRequests
    from fleetctl.gateway.upstream import Upstream
    from fleetctl.gateway.upstream_connection import UpstreamConnection
    from fleetctl.gateway.upstreams import Upstreams
    from fleetctl.model.generation import BoundReason

_log = logging.getLogger("fleetctl.gateway")

CHAT_PATH = b"/v1/chat/completions"


class Exchange(ReceivedAnswer):
    """One request at its replica: the dispatcher's ExchangePort and the client connection's ClientEvents.

    It moves bytes and reports what happens; where the request goes and how it ends is the dispatcher's to decide.
    """

    __slots__ = ("_body", "_connecting", "_ended", "_first_body", "_pacer", "_received", "_upstreams")

    def __init__(  # whom it speaks with, and what about
        self,
        dispatcher: Dispatcher,
        upstreams: Upstreams,
        limits: GatewayLimits,
        client: ClientConnection,
        received: Request,
        lane: DispatchLane[ActiveRequest],
    ) -> None:
        super().__init__(dispatcher, limits, client, lane.route.name)
        self._upstreams = upstreams
        self._received = received
        self._connecting: asyncio.Task[None] | None = None
        self._pacer: StreamPacer | None = None  # of a lane that coalesces
        tier, degradation = received.tier, lane.degradation
        self._response.model = received.model_lines
        if tier is not None:
            self._response.tier, degradation = tier.header, tier.degradation
        self._first_body, self._response.degraded = degrade(
            received.body, degradation, messages_cut=received.messages_cut
        )
        self._body = self._first_body  # for a replica that can go on with another one's stream

    def submit(
        self, lane: DispatchLane[ActiveRequest], measured: MeasuredRequest, client_key: int, ended: EndedRequests
    ) -> None:
        """Ask the dispatcher for a replica; once it is over, `ended` remembers it."""
        self._ended = ended
        dispatcher, parsed = self._dispatcher, measured.parsed
        if parsed.stream and parsed.is_plain and dispatcher.routes.any_continues:
            options = parsed.stream_options
            self._text_bytes_max = self._kept_bytes_max(measured, lane.route.max_model_len)
            # The replica may be lost: its text will be kept, and it is to count its tokens.
            self._shown = shown_usage(options)
            self._body = asking_for_counts(self._first_body, options)
        if lane.route.generation.loop is not LoopAction.OFF and parsed.is_single:
            self._loops = lane.route.generation.loop
        received = self._received
        self.request = ActiveRequest(
            self, lane, measured.prompt, measured.hashes, dispatcher.clock(), is_stream=parsed.stream, size=parsed.size,
            tokens=measured.tokens, is_lane_named=b"x-fleetctl-lane" in received.headers, client=client_key,
            bounds=received.bounds, tier=received.tier, retry_mark=received.retry_mark,
        )  # fmt: skip
        request, headers = self.request, received.headers
        if lane.route.coalesce is not None and isinstance(request.stopwatch, PacedStopwatch):
            self._pacer = StreamPacer(lane.route.coalesce, self._client, request.stopwatch, dispatcher.clock)
            self._sink = self._response.sink = self._pacer
        named = headers.get(REQUEST_ID)
        if named is None:
            request.id = ended.ids.next_id()
        else:  # an engine is given what the answer says, never an unlawful id
            request.id = ended.ids.id_of(named)
            received.forwarded += b"x-request-id: %b\r\n" % request.id
        self._response.request_id = request.id
        request.traceparent = headers.get(TRACEPARENT)
        request.conversation = conversation_of(received, parsed)
        request.client_name, request.degraded = received.client_name, self._response.degraded
        request.limited = self._response.limited = received.limited
        request.in_place_of, request.adapter = received.in_place_of, received.adapter
        if ended.workflows is not None:
            ended.workflows.begin(request, received)
        self._client.exchange = self
        dispatcher.submit(self.request)

    def _kept_bytes_max(self, measured: MeasuredRequest, max_model_len: int) -> int:
        """Return how much text of an answer may be kept."""
        limits = self._limits
        bounds = (measured.tokens.output, max_model_len, limits.output_tokens_max)
        tokens_max = min(bound for bound in bounds if bound)
        return tokens_max * limits.text_bytes_per_token_max

    # ExchangePort: what the dispatcher decides.

    def send(self, replica_id: str) -> None:
        """Write the request to an idle connection of this replica, or to a new one."""
        upstream = self._upstreams[replica_id]
        self._response.replica_id = upstream.replica_id
        connection = upstream.take()
        if connection is not None:
            self._write(upstream, connection)
        else:
            self._connecting = asyncio.get_running_loop().create_task(self._connect(upstream))

    async def _connect(self, upstream: Upstream) -> None:
        try:
            async with asyncio.timeout(self._limits.connect_timeout_s):
                connection = await upstream.connect()
        except (OSError, TimeoutError) as exc:
            self._connecting = None
            _log.info("replica %s: %s", upstream, str(exc) or "connecting took too long")
            self._dispatcher.failed(self.request, RequestEvent.UNREACHABLE)
            return
        self._connecting = None
        if connection.is_closed:  # before it was written to
            self._dispatcher.failed(self.request, RequestEvent.UNREACHABLE)
            return
        self._write(upstream, connection)

    def _write(self, upstream: Upstream, connection: UpstreamConnection) -> None:
        self._connection = connection
        request = self.request
        self._dispatcher.connected(request)
        is_kept = self._text_bytes_max > 0
        self._is_counted = is_kept and request.replica is not None and request.replica.candidate.continues
        body = self._body if self._is_counted else self._first_body
        if upstream.served_name and (table := self._dispatcher.routes.table) is not None:
            body = renamed(body, upstream.served_name, table.served_names)
        if upstream.priority_sign and request.tier is not None and request.turn is not None:
            body = with_priority(body, request.turn.rank, upstream.priority_sign)
        if upstream.form is not None:
            body = spelt(body, upstream.form)
        received = self._received
        head = wire.post(received.target, upstream.request_head, received.forwarded, len(body))
        connection.begin(self, head, body)
        request.is_paused = self._client.is_behind
        if request.is_paused:
            connection.pause()

    def cancel(self) -> None:
        """Close the connection to the replica: that is how engines learn that nobody waits any more."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connection is not None:
            self._connection.cancel()
            self._connection = None

    def refuse(self, refusal: Refusal, *, retry_after_s: float) -> None:
        """Write the refusal, unless another model stands in: it is asked once this request is over."""
        received = self._received
        if received.fallback is not None and refusal.is_shortage:
            received.falls_back = True
        else:
            self._response.refusal(refusal, retry_after_s=retry_after_s)

    def fail(self, reason: RequestEvent) -> None:
        """Write an error of the gateway's own."""
        self._response.failure(reason)

    def resumption(self, *, may_continue: bool) -> Resumption:
        """Look at what was passed on of a lost stream; the next `send` asks for the rest."""
        is_chat = self._received.path == CHAT_PATH
        resumed = self._resume(self._first_body, is_chat=is_chat, may_continue=may_continue)
        self._body = resumed.body or self._body
        return resumed.found

    def end_early(self, reason: BoundReason) -> None:
        """Write the end of a stream that its replica was not done with."""
        relay = self._relay
        if relay is None:  # nothing of it can be told apart from a whole answer
            self._response.cut()
            return
        if not self.request.is_committed:  # of tokens that show no text: all events are held back
            self._begin(b"")
        is_chat, prompt_tokens = self._received.path == CHAT_PATH, self.request.prompt.prompt_tokens
        self._response.end(last_events(relay, self._first_body, reason, is_chat=is_chat, prompt_tokens=prompt_tokens))
        counted, tokens = relay.counts()
        self._note_usage(Usage(counted, tokens) if counted is not None else None)

    def over(self) -> None:
        """Let the client go on to its next request."""
        request = self.request
        if self._pacer is not None:
            self._pacer.close()
        # Each knows the other: together they would wait for the garbage collector.
        del self.request
        self._ended.note(request)
        if self._received.falls_back:
            self._client.serve_again(self._received)
        else:
            self._client.answered()

    # ClientEvents: what the client does.

    def client_gone(self) -> None:
        """Stop: nobody will read the answer. The replica learns it at once."""
        self._dispatcher.client_gone(self.request)

    def client_behind(self) -> None:
        """Stop reading from the replica."""
        self.request.is_paused = True
        if self._connection is not None:
            self._connection.pause()

    def client_ready(self) -> None:
        """Read on."""
        self.request.is_paused = False
        self.request.heard_s = now_s = self._dispatcher.clock()
        self.request.stopwatch.resumed(now_s)
        if self._connection is not None:
            self._connection.resume()

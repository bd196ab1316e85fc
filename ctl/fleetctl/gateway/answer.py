"""The way back: what a replica answers, passed on to the client as far as it goes, whichever replica goes on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.dispatch.failure import MALFORMED_STATUSES, failure_of
from fleetctl.core.dispatch.state import RequestEvent, RequestState
from fleetctl.core.slo.endings import Ending
from fleetctl.gateway import wire
from fleetctl.gateway.loop_watch import note_loop, watch_of
from fleetctl.gateway.opening import only_open
from fleetctl.gateway.response import ClientResponse, PieceSink
from fleetctl.gateway.resuming import Resumed, resume
from fleetctl.gateway.stream_fault import LOOPED, STOPPED, StreamFault, truncated, whole_fault
from fleetctl.gateway.transcript import Transcript
from fleetctl.gateway.usage import SHOWS_NONE, read_usage
from fleetctl.gateway.watched_relay import relay_of
from fleetctl.model.generation import BoundReason

if TYPE_CHECKING:
    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.gateway.client import ClientConnection
    from fleetctl.gateway.limits import GatewayLimits
    from fleetctl.gateway.relay import EventRelay
    from fleetctl.gateway.upstream_connection import UpstreamConnection
    from fleetctl.gateway.usage import Usage
    from fleetctl.model.generation import LoopAction

# A reused connection closed this soon after it was written to was already closing: the replica saw nothing.
_STALE_S = 0.25
_STREAMING = RequestState.STREAMING


class ReceivedAnswer:
    """The half of an exchange that a replica's connection knows as Receiver; `Exchange` adds the other half.

    It reports every end to the dispatcher, and writes the one that the dispatcher asks for.
    """

    __slots__ = (
        "_client", "_connection", "_dispatcher", "_fault", "_is_counted", "_last_events", "_limits", "_loops", "_obstacle", "_relay",
        "_response", "_shown", "_sink", "_text_bytes_max", "request",
    )  # fmt: skip

    request: ActiveRequest

    def __init__(self, dispatcher: Dispatcher, limits: GatewayLimits, client: ClientConnection, lane_name: str) -> None:
        self._dispatcher = dispatcher
        self._limits = limits
        self._client = client
        self._sink: PieceSink = client  # of events
        self._response = ClientResponse(client, lane_name, limits.whole_bytes_max)
        self._connection: UpstreamConnection | None = None
        self._relay: EventRelay | None = None  # of an answer in events
        self._fault: StreamFault | None = None  # the last one that a replica's events ended with
        self._last_events, self._obstacle = b"", ""  # the end that a lost stream lacks, and why it cannot go on
        self._text_bytes_max = 0  # of a stream kept so that another replica can go on with it; 0: none could
        self._is_counted = False  # the replica was asked for counts that the client did not ask for
        self._shown = SHOWS_NONE
        self._loops: LoopAction | None = None  # what becomes of an answer that repeats itself; None: it is not watched

    # Receiver: what the replica answers.

    def head(self, status: int, headers: list[wire.Header]) -> None:
        """Take the head. A stream under way keeps the one it has."""
        self.request.has_answer, self._fault = True, None
        if self.request.is_committed:
            self._response.status = status
            return
        self._response.take_head(status, headers)
        self._relay = None
        if status == 200 and wire.is_event_stream(headers):
            self._relay = relay_of(
                self._limits,
                watch_of(self.request, self._loops),
                transcript=Transcript(self._text_bytes_max) if self._text_bytes_max else None,
                is_counted=self._is_counted,
                shown=self._shown,
            )

    def body(self, data: bytes, now_s: float) -> None:
        """Pass on, or hold back, a piece of the answer."""
        request, relay = self.request, self._relay
        request.heard_s = now_s
        if relay is None or self._response.status != 200:
            self._plain_body(data)
            return
        events = relay.feed(data)
        new = relay.new_tokens
        if new:
            request.stopwatch.tokens(now_s, new)
            if request.awaits_token:
                self._dispatcher.first_token(request, now_s)
        if events:
            if request.state is _STREAMING:
                self._sink.write_piece(events)
            else:
                self._first_events(events, shows_content=new > 0)
        if relay.fault is not None:
            self._faulted(relay.fault)

    def _first_events(self, events: bytes, *, shows_content: bool) -> None:
        if self.request.is_committed:
            self._dispatcher.passed_on(self.request)
            self._sink.write_piece(events)
        # Nor a comment nor a role is a reason yet to promise a 200: what is lost now can still start over elsewhere.
        elif shows_content or not only_open(events) or not self._response.hold(events):
            self._begin(events)

    def _plain_body(self, data: bytes) -> None:
        """Hold an answer without events back; begin to pass a long one on. What is left of a long error is not waited for."""
        if self.request.is_committed:
            if self._relay is None:
                self._client.write_piece(data)
        elif self._response.hold(data):
            return
        elif self._response.status == 200:
            self._begin(data)
        elif self._connection is not None:
            self._connection.cancel()
            self.complete()

    def _begin(self, data: bytes) -> None:
        self._dispatcher.passed_on(self.request)
        self._response.begin(data)

    def complete(self) -> None:
        """Act on an answer that has ended as HTTP has it; whether it is whole, a stream's events say."""
        self._connection = None
        relay, status, is_committed = self._relay, self._response.status, self.request.is_committed
        if relay is not None and status == 200:
            if relay.is_finished:
                self._complete_pieces()
            else:
                self._faulted(truncated())
        elif not is_committed:
            self._complete_whole(status)
        elif relay is None:
            self._complete_pieces()
        else:
            self._dispatcher.failed(self.request, failure_of(status) or RequestEvent.REJECTED)

    def _complete_pieces(self) -> None:
        self._response.end()
        self._note_usage(self._relay.usage if self._relay is not None else None)
        self._dispatcher.answered(self.request, Ending.COMPLETE)

    def _complete_whole(self, status: int) -> None:
        failure = failure_of(status) if status >= 300 else None
        if failure is not None:
            self._dispatcher.failed(self.request, failure)
            return
        if status in MALFORMED_STATUSES and self._dispatcher.exceeds_context(self.request):
            return
        body = self._response.held()
        fault = whole_fault(body) if status < 300 else None
        if fault is not None:
            self._faulted(fault)
        elif status < 300:
            self._response.whole(body)
            self._note_usage(read_usage(body))
            if self._loops is not None:
                note_loop(self.request, body)
            self._dispatcher.answered(self.request, Ending.COMPLETE)
        else:
            self._response.rejected(body)
            self.request.rejected_status = self._response.status
            self._dispatcher.answered(self.request, Ending.of_status(self._response.status))

    def lost(self, *, answered: bool, reused: bool, is_lawful: bool = True) -> None:
        """Report a connection that broke, or was broken off."""
        connection, self._connection, request = self._connection, None, self.request
        is_stale = reused and not answered and self._dispatcher.clock() - request.dispatched_s < _STALE_S
        if is_stale and connection is not None:
            # Its process may have gone, and then its other idle connections are as dead.
            connection.upstream.drop_idle()
        closed = RequestEvent.CLOSED if is_lawful else RequestEvent.PROTOCOL_ERROR
        self._dispatcher.failed(request, RequestEvent.STALE_CONNECTION if is_stale else closed)

    def _faulted(self, fault: StreamFault) -> None:
        """Act on an error event, or on an end that is none."""
        self._fault = fault
        if self._connection is not None:
            self._connection.cancel()
            self._connection = None
        if fault is LOOPED:
            self._dispatcher.early.end(self.request, BoundReason.LOOP)
            return
        if fault is STOPPED:
            self._complete_pieces()
            return
        # What ends in due form without a single event is no stream that was lost, but no stream.
        was_lost = fault.is_loss and (self.request.is_committed or bool(self._response.held()))
        failure = RequestEvent.CLOSED if was_lost else failure_of(fault.status)
        if self.request.is_committed:
            self._dispatcher.failed(self.request, RequestEvent.CLOSED if was_lost else RequestEvent.ERROR)
        elif failure is not None:
            self._dispatcher.failed(self.request, failure)
        else:
            self.pass_on()
            self.request.rejected_status = fault.status
            self._dispatcher.answered(self.request, Ending.of_status(fault.status))

    def _note_usage(self, usage: Usage | None) -> None:
        if usage is not None:
            counted = self._relay.tokens if self._relay is not None else 0
            self.request.prompt_tokens_used = usage.prompt_tokens
            self.request.cached_tokens_used = usage.cached_tokens
            self.request.output_tokens_uncounted = usage.completion_tokens - counted

    # Of ExchangePort: how an answer ends that a replica has not ended.

    def pass_on(self) -> None:
        """Write the error that the replica answered with."""
        fault = self._fault
        if fault is None:
            self._response.rejected(self._response.held())
        else:
            self._response.take_head(fault.status, [wire.JSON])
            self._response.whole(msgspec.json.encode(fault.error))

    def _resume(self, first_body: bytes, *, is_chat: bool, may_continue: bool) -> Resumed:
        """Look at what was passed on of a lost stream: whether it can go on, and how."""
        lost = self.request.continuations
        obstacle = "" if may_continue else (f"it was lost {lost + 1} times" if lost else "no engine of its lane can")
        resumed = resume(self._relay, first_body, is_chat=is_chat, shown=self._shown, obstacle=obstacle)
        self._last_events, self._obstacle = resumed.last_events, resumed.obstacle
        return resumed

    def end_stream(self) -> None:
        """Write the end of a stream that lacked only that."""
        self._response.end(self._last_events)
        self._note_usage(self._relay.usage if self._relay is not None else None)

    def break_stream(self, reason: RequestEvent) -> None:
        """Write an error event and no [DONE]; cut an answer that has no events."""
        if self._relay is None:
            self._response.cut()
            return
        if reason is RequestEvent.TIMED_OUT:
            error = wire.error_object("the request took too long", kind="timeout_error", code=504)
        elif reason is RequestEvent.EXPIRED:
            error = wire.error_object("no replica could go on with the stream", kind="server_error", code=503)
        else:
            error = (self._fault or truncated()).because(self._obstacle)
        self._response.end(b"data: " + msgspec.json.encode(error) + b"\n\n")

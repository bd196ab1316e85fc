"""The client's side of a connection: an asyncio protocol that takes requests in order and writes answers."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Protocol, cast

from fleetctl.core.admission.refusal import Refusal
from fleetctl.gateway import wire
from fleetctl.gateway.client_deadline import ClientDeadline, ConnectionState
from fleetctl.gateway.requests import Request, RequestReader

if TYPE_CHECKING:
    from fleetctl.gateway.client_events import ClientEvents
    from fleetctl.gateway.limits import GatewayLimits


class ClientService(Protocol):
    """The port a client connection hands its requests to."""

    limits: GatewayLimits
    is_stopping: bool
    body_bytes_max: int  # accepted now

    def clock(self) -> float:
        """Return seconds from any start."""
        ...

    def opened(self, client: ClientConnection) -> bool:
        """Note a connection; False: there are too many."""
        ...

    def rested(self, client: ClientConnection) -> None:
        """Note that one has been answered and waits for its next request."""
        ...

    def closed(self, client: ClientConnection) -> None:
        """Note its end."""
        ...

    def admits_body(self, authorization: bytes) -> bool:
        """Whether a body is read of a request with this key; its answer may still be that the key is wrong."""
        ...

    def serve(self, client: ClientConnection, request: Request) -> None:
        """Answer a request, now or later: by `reply` or pieces, then `answered`."""
        ...


class ClientConnection(asyncio.Protocol):
    """Serves one request at a time. Pipelined ones wait, a bounded number of them, and are answered in order."""

    __slots__ = (
        "_behind_s", "_bodies_admitted", "_current", "_deadline", "_is_chunked", "_is_closed", "_is_lingering",
        "_is_serving", "_reader", "_service", "_transport", "_write", "exchange",
    )  # fmt: skip

    def __init__(self, service: ClientService) -> None:
        self._service = service
        self._reader = RequestReader(service.limits, service.body_bytes_max)
        self.exchange: ClientEvents | None = None
        self._current: Request | None = None
        self._is_serving = self._is_lingering = self._is_closed = self._is_chunked = False
        self._behind_s = math.inf
        self._deadline = ClientDeadline(service.limits)
        self._bodies_admitted = 0  # the number of the last request whose body may be read

    # The transport's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._service.limits.client_write_bytes_high)
        self._write = self._transport.write
        if not self._service.opened(self):
            self._refuse(503, "too many connections", reason=Refusal.CONNECTIONS)

    def data_received(self, data: bytes) -> None:
        """Parse, then serve what is whole."""
        reader = self._reader
        if self._is_lingering or self._is_closed or reader.fault is not None:
            return
        reader.body_bytes_max = self._service.body_bytes_max
        reader.feed(data)
        if reader.in_body and reader.begun != self._bodies_admitted and reader.fault is None:
            if self._service.admits_body(reader.authorization):
                self._bodies_admitted = reader.begun
            else:  # it is neither waited for nor held
                reader.refuse_body(401, "no or wrong API key")
        if not self._is_serving:
            self._serve_next()

    def eof_received(self) -> bool:
        """Take a half-closed connection for a closed one: it is how clients leave, and the replica must learn it."""
        self._leave_exchange()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop whatever was being done for this client."""
        del exc
        self._is_closed = True
        self._leave_exchange()
        self._service.closed(self)

    def pause_writing(self) -> None:
        """Hold the replica back: the client does not keep up."""
        self._behind_s = self._service.clock()
        if self.exchange is not None:
            self.exchange.client_behind()

    def resume_writing(self) -> None:
        """Let the replica go on."""
        self._behind_s = math.inf
        if self.exchange is not None:
            self.exchange.client_ready()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is done for it, and no request of its has come as far as its body."""
        is_at_rest = not (self._is_serving or self._is_lingering or self._is_closed)
        return is_at_rest and not self._reader.ready and not self._reader.in_body

    @property
    def address(self) -> str:
        """The client's host; empty for one that has none."""
        peer = self._transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""

    # Serving.

    def _serve_next(self) -> None:
        """Serve those that wait until one takes its time; then say what the client's next bytes ask for."""
        reader = self._reader
        while reader.ready and not self._is_serving and not self._is_closed:
            self._current = reader.take()
            self._is_serving = True
            self._service.serve(self, self._current)
        # Answering the last of them may have come here already.
        if self._is_serving or self._is_lingering or self._is_closed:
            return
        if reader.fault is not None:
            self._refuse(reader.fault.status, reader.fault.message)
        elif reader.wants_continue:
            reader.wants_continue = False
            self._write(wire.CONTINUE)

    @property
    def is_behind(self) -> bool:
        """Whether the client does not read as fast as it is written to."""
        return self._behind_s != math.inf

    def reply(self, status: int, header_lines: bytes, body: bytes) -> None:
        """Write a whole response."""
        self._write(wire.whole(status, header_lines if self._keeps_alive else header_lines + wire.CLOSE, body))

    def begin_pieces(self, status: int, header_lines: bytes) -> None:
        """Write the head of a response whose length is not known."""
        self._is_chunked = self._current is not None and not self._current.http_1_0
        coding = wire.CHUNKED if self._is_chunked else b""
        self._write(wire.head(status, header_lines + coding + (b"" if self._keeps_alive else wire.CLOSE)))

    def write_piece(self, data: bytes) -> None:
        """Write a piece of it; not empty."""
        self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)

    def end_pieces(self) -> None:
        """Write its end."""
        if self._is_chunked:
            self._write(wire.LAST_CHUNK)

    def cut(self) -> None:
        """Break the connection off: the only honest end of a response that cannot be finished."""
        self._is_closed = True
        self._transport.abort()

    def answered(self) -> None:
        """Go on to the next request, or close."""
        self.exchange = None
        self._is_serving = False
        if self._is_closed:
            return
        if not self._keeps_alive:
            self.close()
        else:
            self._service.rested(self)
            if self._reader.ready or self._reader.fault is not None or self._reader.wants_continue:
                self._serve_next()

    def serve_again(self, request: Request) -> None:
        """Serve the request at hand once more; nothing was written yet."""
        self.exchange = None
        if not self._is_closed:
            self._service.serve(self, request)

    def close(self) -> None:
        """Close once everything is written."""
        self._is_closed = True
        self._transport.close()

    def stop(self) -> None:
        """Close if idle; else the answer at hand is the last."""
        if not self._is_serving and not self._reader.ready and self._reader.is_between:
            self.close()

    @property
    def _keeps_alive(self) -> bool:
        current = self._current
        return current is not None and current.keep_alive and not current.http_1_0 and not self._service.is_stopping

    def _leave_exchange(self) -> None:
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            self._is_closed = True
            exchange.client_gone()

    def _refuse(self, status: int, message: str, *, reason: Refusal | None = None) -> None:
        """Write an error, then read on for a moment: closing at once would reset what the client has yet to read."""
        lines = wire.lines(wire.JSON) + wire.CLOSE
        if reason is not None:
            lines += wire.lines((b"x-fleetctl-reason", reason.value.encode()))
        kind = "server_error" if status >= 500 else "authentication_error" if status == 401 else "invalid_request_error"
        self._write(wire.whole(status, lines, wire.error_body(message, kind=kind, code=status)))
        self._is_lingering = True
        self._transport.write_eof()

    # Deadlines.

    def check(self, now_s: float) -> None:
        """End what takes too long; called every so often."""
        if now_s - self._behind_s > self._service.limits.client_stall_s:
            self.cut()
            return
        state = self._state_now()
        if not self._deadline.has_passed(state, self._reader.begun, now_s):
            return
        if state in (ConnectionState.HEAD, ConnectionState.BODY) and self._reader.begun:
            self._refuse(408, "the request did not come in time")
        else:
            self.cut()

    def _state_now(self) -> ConnectionState:
        if self._is_closed or self._is_lingering:
            return ConnectionState.CLOSING if self._is_closed else ConnectionState.LINGERING
        if self._is_serving:
            return ConnectionState.SERVING
        if self._reader.in_body:
            return ConnectionState.BODY
        # Who connects is expected to speak.
        return ConnectionState.HEAD if self._reader.in_head or not self._reader.begun else ConnectionState.IDLE

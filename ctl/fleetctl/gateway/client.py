"""The client's side: an asyncio protocol around httptools that takes requests in order and writes answers."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import httptools

from fleetctl.core.admission.refusal import Refusal
from fleetctl.gateway import wire

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.gateway.limits import DoorLimits

# Not passed on to replicas: hop by hop, ours, or set anew. No encoding is accepted, for events must be readable.
_KEPT_BACK = wire.HOP_BY_HOP | {
    b"host", b"content-length", b"expect", b"authorization", b"accept-encoding",
    b"x-fleetctl-lane", b"x-fleetctl-batch", b"http2-settings",
}  # fmt: skip
_UPGRADING = frozenset((b"connection", b"upgrade", b"http2-settings"))


@dataclass(slots=True)
class Request:
    """One request, whole."""

    method: bytes
    target: bytes
    path: bytes
    headers: dict[bytes, bytes]  # those not passed on
    forwarded: bytes  # those passed on, as they go on the wire
    body: bytes
    keep_alive: bool
    http_1_0: bool


class Service(Protocol):
    """What a connection serves."""

    limits: DoorLimits
    is_stopping: bool
    body_bytes_max: int  # accepted now

    def clock(self) -> float:
        """Return seconds from any start."""
        ...

    def opened(self, client: ClientConnection) -> bool:
        """Note a connection; False: there are too many."""
        ...

    def closed(self, client: ClientConnection) -> None:
        """Note its end."""
        ...

    def serve(self, client: ClientConnection, request: Request) -> None:
        """Answer a request, now or later: by `reply` or pieces, then `answered`."""
        ...


class Occupant(Protocol):
    """Who is answering the request at hand."""

    def client_gone(self) -> None:
        """Stop: nobody will read it."""
        ...

    def client_behind(self) -> None:
        """Stop sending: the client does not read fast enough."""
        ...

    def client_ready(self) -> None:
        """Send on."""
        ...


class ClientConnection(asyncio.Protocol):
    """Serves one request at a time. Pipelined ones wait, a bounded number of them, and are answered in order."""

    __slots__ = (
        "_behind_s",
        "_body",
        "_body_bytes",
        "_current",
        "_deadline_s",
        "_fault",
        "_forwarded",
        "_head_bytes",
        "_header_count",
        "_headers",
        "_in_body",
        "_in_head",
        "_is_chunked",
        "_is_closed",
        "_is_lingering",
        "_is_serving",
        "_limits",
        "_parser",
        "_service",
        "_target",
        "_transport",
        "_waiting",
        "_waiting_bytes",
        "_write",
        "occupant",
    )  # fmt: skip

    def __init__(self, service: Service) -> None:
        self._service = service
        self._limits = service.limits
        self.occupant: Occupant | None = None
        self._waiting: deque[Request] = deque()
        self._waiting_bytes = 0
        self._current: Request | None = None
        self._is_serving = self._is_lingering = self._is_closed = self._is_chunked = False
        self._fault: tuple[int, str] | None = None
        self._behind_s = math.inf
        self._deadline_s = math.inf
        self._clear()

    def _clear(self) -> None:
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._forwarded: list[bytes] = []
        self._body: list[bytes] = []
        self._head_bytes = self._header_count = self._body_bytes = 0
        self._in_head = self._in_body = False

    # The transport's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limits.client_write_bytes_high)
        self._write = self._transport.write
        self._parser = httptools.HttpRequestParser(self)
        self._deadline_s = self._service.clock() + self._limits.header_timeout_s
        if not self._service.opened(self):
            self._refuse(503, "too many connections", reason=Refusal.CONNECTIONS)

    def data_received(self, data: bytes) -> None:
        """Parse, then serve what is whole."""
        if self._is_lingering or self._is_closed or self._fault is not None:
            return
        try:
            self._feed(data)
        except httptools.HttpParserError as exc:
            self._blame(400, f"not HTTP: {exc}")
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.header_bytes_max:
                self._blame(431, "the request's headers are too long")
        if not self._is_serving:
            self._serve_next()

    def _feed(self, data: bytes) -> None:
        while data and self._fault is None:
            try:
                self._parser.feed_data(data)
                data = b""
            except httptools.HttpParserUpgrade as exc:
                # Java's client asks every server for h2c first; that is ignored, as RFC 9110 allows. llhttp stops at
                # the end of such a head and would take the body for the other protocol: start over without.
                data = self._head_without_upgrade() + data[exc.args[0] :]
                self._clear()
                self._parser = httptools.HttpRequestParser(self)

    def _head_without_upgrade(self) -> bytes:
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._blame(400, "this is no proxy")
            return b""
        kept = [b"%b: %b\r\n" % header for header in self._headers.items() if header[0] not in _UPGRADING]
        return b"".join((method, b" ", self._target, b" HTTP/1.1\r\n", *self._forwarded, *kept, b"\r\n"))

    def eof_received(self) -> bool:
        """Take a half-closed connection for a closed one: it is how clients leave, and the replica must learn it."""
        self._leave_occupant()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop whatever was being done for this client."""
        del exc
        self._is_closed = True
        self._waiting.clear()
        self._leave_occupant()
        self._service.closed(self)

    def pause_writing(self) -> None:
        """Hold the replica back: the client does not keep up."""
        self._behind_s = self._service.clock()
        if self.occupant is not None:
            self.occupant.client_behind()

    def resume_writing(self) -> None:
        """Let the replica go on."""
        self._behind_s = math.inf
        if self.occupant is not None:
            self.occupant.client_ready()

    # The parser's callbacks: they only note.

    def on_message_begin(self) -> None:
        """Note the first byte of a request."""
        self._in_head = True
        if not self._is_serving:
            self._deadline_s = self._service.clock() + self._limits.header_timeout_s

    def on_url(self, piece: bytes) -> None:
        """Note a piece of the target."""
        self._target += piece
        if len(self._target) > self._limits.url_bytes_max:
            self._blame(414, "the request's target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header."""
        name = name.lower()
        self._header_count += 1
        if name in _KEPT_BACK:
            self._headers[name] = value
        else:
            self._forwarded += (name, b": ", value, b"\r\n")
        if self._header_count > self._limits.header_count_max:
            self._blame(431, "the request has too many headers")

    def on_headers_complete(self) -> None:
        """Check what the head announces."""
        self._in_head, self._in_body = False, True
        if not self._is_serving:
            self._deadline_s = self._service.clock() + self._limits.body_timeout_s
        length = self._headers.get(b"content-length", b"")
        # llhttp has made sure that it is a number.
        if length and int(length) > self._service.body_bytes_max:
            self._blame(413, "the request's body is too long")
        elif self._fault is None and b"expect" in self._headers and not self._is_serving and not self._waiting:
            if self._headers[b"expect"].lower() == b"100-continue":
                self._write(wire.CONTINUE)
            else:
                self._blame(417, "this expectation cannot be met")

    def on_body(self, piece: bytes) -> None:
        """Note a piece of the body."""
        self._body.append(piece)
        self._body_bytes += len(piece)
        if self._body_bytes + self._waiting_bytes > self._service.body_bytes_max:
            self._body.clear()
            self._blame(413, "the request's body is too long")

    def on_message_complete(self) -> None:
        """Line the request up. llhttp forgets whether to keep the connection right after this call."""
        if self._parser.should_upgrade():
            return
        if self._fault is None:
            if len(self._waiting) >= self._limits.pipelined_max:
                self._blame(400, "too many pipelined requests")
            else:
                self._waiting.append(self._request())
                self._waiting_bytes += self._body_bytes
        self._clear()

    def _request(self) -> Request:
        target = self._target
        return Request(
            method=self._parser.get_method(),
            target=target,
            path=target.partition(b"?")[0],
            headers=self._headers,
            forwarded=b"".join(self._forwarded),
            body=self._body[0] if len(self._body) == 1 else b"".join(self._body),
            keep_alive=self._parser.should_keep_alive(),
            http_1_0=self._parser.get_http_version() == "1.0",
        )

    # Serving.

    def _serve_next(self) -> None:
        """Serve those in line until one takes its time; then, if the client's bytes were at fault, say so and end."""
        while self._waiting and not self._is_serving and not self._is_closed:
            request = self._waiting.popleft()
            self._waiting_bytes -= len(request.body)
            self._current = request
            self._is_serving = True
            self._deadline_s = math.inf
            self._service.serve(self, request)
        # Answering the last of them may have come here already.
        if self._fault is not None and not self._is_serving and not self._is_lingering:
            self._refuse(*self._fault)

    @property
    def is_behind(self) -> bool:
        """Whether the client does not read as fast as it is written to."""
        return self._behind_s != math.inf

    def reply(self, status: int, headers: Iterable[wire.Header], body: bytes) -> None:
        """Write a whole response."""
        self._write(wire.whole(status, (*headers, *self._closing()), body))

    def begin_pieces(self, status: int, headers: Iterable[wire.Header]) -> None:
        """Write the head of a response whose length is not known."""
        self._is_chunked = not self._is_1_0
        coding = ((b"transfer-encoding", b"chunked"),) if self._is_chunked else ()
        self._write(wire.head(status, (*headers, *coding, *self._closing())))

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
        self.occupant = None
        self._is_serving = False
        if self._is_closed:
            return
        if self._current is None or not self._keeps_alive:
            self.close()
            return
        is_idle = not self._in_head and not self._in_body
        limits = self._limits
        self._deadline_s = self._service.clock() + (limits.idle_timeout_s if is_idle else limits.body_timeout_s)
        if self._waiting or self._fault is not None:
            self._serve_next()

    def close(self) -> None:
        """Close once everything is written."""
        self._is_closed = True
        self._waiting.clear()
        self._deadline_s = self._service.clock() + self._limits.client_stall_s
        self._transport.close()

    def stop(self) -> None:
        """Close if idle; else the answer at hand is the last."""
        if not (self._is_serving or self._waiting or self._in_head or self._in_body):
            self.close()

    def check(self, now_s: float) -> None:
        """End what takes too long."""
        if now_s - self._behind_s > self._limits.client_stall_s:
            self.cut()
        elif now_s > self._deadline_s:
            if self._is_lingering or self._is_closed or not (self._in_head or self._in_body):
                self.cut()
            else:
                self._refuse(408, "the request did not come in time")

    def _blame(self, status: int, message: str) -> None:
        """Note the first thing wrong with what the client sent; it is said once it is its turn."""
        if self._fault is None:
            self._fault = (status, message)

    @property
    def _is_1_0(self) -> bool:
        return self._current is not None and self._current.http_1_0

    @property
    def _keeps_alive(self) -> bool:
        current = self._current
        return current is not None and current.keep_alive and not current.http_1_0 and not self._service.is_stopping

    def _closing(self) -> tuple[wire.Header, ...]:
        return () if self._keeps_alive else (wire.CLOSE,)

    def _leave_occupant(self) -> None:
        occupant, self.occupant = self.occupant, None
        if occupant is not None:
            self._is_closed = True
            occupant.client_gone()

    def _refuse(self, status: int, message: str, *, reason: Refusal | None = None) -> None:
        """Write an error, then read on for a moment: closing at once would reset what the client has yet to read."""
        headers = [wire.JSON, wire.CLOSE]
        if reason is not None:
            headers.append((b"x-fleetctl-reason", reason.value.encode()))
        kind = "server_error" if status >= 500 else "invalid_request_error"
        self._write(wire.whole(status, headers, wire.error_body(message, kind=kind, code=status)))
        self._is_lingering = True
        self._waiting.clear()
        self._deadline_s = self._service.clock() + self._limits.linger_s
        if self._transport.can_write_eof():
            self._transport.write_eof()

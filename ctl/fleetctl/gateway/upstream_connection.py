"""A replica as the gateway speaks with it: an asyncio protocol around httptools."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING, Protocol, cast

import httptools

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.gateway import wire
    from fleetctl.gateway.limits import GatewayLimits
    from fleetctl.gateway.receiver import Receiver


class ConnectionPool(Protocol):
    """The replica that a connection leads to, as far as the connection knows it."""

    limits: GatewayLimits
    opened: int

    def give(self, connection: UpstreamConnection) -> None:
        """Keep a connection whose answer is whole."""
        ...

    def discard(self, connection: UpstreamConnection) -> None:
        """Forget a connection that closed while idle."""
        ...

    def drop_idle(self) -> None:
        """Close all idle ones."""
        ...

    def protocol_error(self, what: object) -> None:
        """Count an answer that breaks HTTP or a bound."""
        ...


_OF_THE_BODY = frozenset((b"content-length", b"transfer-encoding", b"content-encoding"))


class _UnlawfulError(Exception):
    """The replica's answer breaks a rule that the parser does not know."""


class UpstreamConnection(asyncio.Protocol):
    """Carries one request at a time.

    Parser callbacks only note; everything is acted on after the bytes are fed, so that an error of ours is never
    mistaken for one of the parser's. Whatever the replica sends beside the body of its answer (heads, interim ones too,
    chunk extensions, trailers) is bounded together: bytes that bring no body are counted until some come.
    """

    __slots__ = (
        "_answered", "_barren_bytes", "_body", "_clock", "_done", "_feed", "_has_length", "_head_done", "_headers",
        "_headers_new", "_interim", "_keeps_alive", "_more", "_parser", "_receiver", "_reused", "_status",
        "_transport", "idle_since_s", "is_closed", "upstream",
    )  # fmt: skip

    def __init__(self, upstream: ConnectionPool, clock: Callable[[], float]) -> None:
        self.upstream = upstream
        self._clock = clock
        self._receiver: Receiver | None = None
        self._reused = False
        self._body = b""
        self._more: list[bytes] = []  # rarely: further pieces of the same read
        self.idle_since_s = 0.0
        self.is_closed = False
        self._clear()

    def _clear(self) -> None:
        self._headers: list[wire.Header] = []
        self._barren_bytes = self._status = 0
        self._headers_new = self._head_done = self._interim = self._answered = self._done = self._keeps_alive = (
            self._has_length
        ) = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start parsing."""
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpResponseParser(self)
        self._feed = self._parser.feed_data
        self.upstream.opened += 1

    def begin(self, receiver: Receiver, head: bytes, body: bytes) -> None:
        """Send a request; its response goes to `receiver`."""
        self._receiver = receiver
        self._clear()
        # Joining a small body saves a system call; copying a big one costs more than it.
        if len(body) < 65_536:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)

    def cancel(self) -> None:
        """Break off: closing the connection is how engines learn that nobody waits any more."""
        self._receiver = None
        self.is_closed = True
        self._transport.abort()

    def close(self) -> None:
        """Close an idle connection."""
        self.is_closed = True
        self._transport.close()

    def pause(self) -> None:
        """Stop reading: the client is behind."""
        if not self.is_closed:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if not self.is_closed:
            self._transport.resume_reading()

    # The parser's callbacks.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header; trailers are dropped, and with them what follows a whole answer."""
        if self._head_done:
            return
        name = name.lower()
        if name in _OF_THE_BODY:
            if name == b"content-encoding":
                if value.lower() != b"identity":  # a client would unpack whatever is in it
                    raise _UnlawfulError("its answer is compressed, which it was not asked for")
            else:
                self._has_length = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Note the end of a head; 1xx ones are not the answer."""
        if self._done:
            raise _UnlawfulError("it began a second answer to one request")
        self._status = self._parser.get_status_code()
        self._interim = self._status < 200
        self._headers_new = self._head_done = not self._interim

    def on_body(self, data: bytes) -> None:
        """Note a piece of the body."""
        if self._body:
            self._more.append(data)
        else:
            self._body = data

    def on_message_complete(self) -> None:
        """Note the end. llhttp forgets whether to keep the connection right after this call."""
        if self._interim:
            self._headers = []
            return
        self._done = True
        self._keeps_alive = self._parser.should_keep_alive()

    # The transport's callbacks.

    def data_received(self, data: bytes) -> None:
        """Parse, then pass on."""
        receiver = self._receiver
        if receiver is None:  # Nobody asked: a reply to nothing, or bytes after the end.
            self.cancel()
            return
        self._answered = True
        try:
            self._feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            self.upstream.protocol_error(exc.__context__ or exc)  # ours, where a callback raised it
            if not self._done:
                self._break()
                return
            # The answer is whole; what follows it belongs to nothing, and what would come next could not be trusted.
            self._keeps_alive = False
        if self._headers_new:
            self._headers_new = False
            if self._is_head_too_long(len(data)):
                self._break()
                return
            receiver.head(self._status, self._headers)  # Only notes: the receiver stays.
        body = self._body
        if body:
            self._body = b""
            self._barren_bytes = 0
            if self._more:
                body = b"".join((body, *self._more))
                self._more.clear()
            receiver.body(body, self._clock())
        else:
            self._barren_bytes += len(data)
            if self._barren_bytes > self.upstream.limits.header_bytes_max:
                self.upstream.protocol_error("it sends headers, trailers or chunk extensions without end")
                self._break()
                return
        if self._done and self._receiver is receiver:
            self._finish(receiver)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits for an answer, or leave the pool."""
        self.is_closed = True
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            self.upstream.discard(self)
        elif exc is None and self._head_done and not self._has_length:
            receiver.complete()  # A body without a length ends with its connection.
        else:
            receiver.lost(answered=self._answered, reused=self._reused)

    def _is_head_too_long(self, read_bytes: int) -> bool:
        limits = self.upstream.limits
        is_long = len(self._headers) > limits.header_count_max or (
            self._barren_bytes + read_bytes > limits.header_bytes_max
            and self._barren_bytes + sum(map(len, chain(*self._headers))) > limits.header_bytes_max
        )
        if is_long:
            self.upstream.protocol_error("the headers of its answer are too long")
        return is_long

    def _break(self) -> None:
        """End an exchange whose replica does not keep to HTTP, or to the bounds set to it."""
        receiver, self._receiver = self._receiver, None
        self.is_closed = True
        self._transport.abort()
        if receiver is not None:
            receiver.lost(answered=True, reused=False, is_lawful=False)

    def _finish(self, receiver: Receiver) -> None:
        self._receiver = None
        # One that answers before it has read its request would take the rest of it for the next.
        if self._keeps_alive and not self.is_closed and not self._transport.get_write_buffer_size():
            self._reused = True
            self._transport.resume_reading()
            self.upstream.give(self)
        else:
            self.close()
        receiver.complete()

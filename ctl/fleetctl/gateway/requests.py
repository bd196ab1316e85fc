"""Requests out of a client's bytes: httptools, bounds on everything, and no IO."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httptools
import msgspec

from fleetctl.core.fairness.retries import RetryMark
from fleetctl.gateway import wire
from fleetctl.gateway.request_ids import REQUEST_ID, TRACEPARENT
from fleetctl.model.generation import BoundReason, GenerationSpec

if TYPE_CHECKING:
    from fleetctl.gateway.limits import GatewayLimits

# Kept: not passed on to replicas, as they are hop by hop, ours, or set anew, or read. No encoding is accepted, for events
# must be readable; a body is JSON whatever its client calls it, as it was read as that.
_KEPT = wire.HOP_BY_HOP | {
    b"host", b"content-length", b"expect", b"authorization", b"accept-encoding",
    b"x-fleetctl-lane", b"x-fleetctl-batch", b"x-fleetctl-tier", b"http2-settings", REQUEST_ID, TRACEPARENT,
    b"x-fleetctl-workflow", b"x-fleetctl-workflow-kind", b"x-fleetctl-parent", b"x-fleetctl-conversation",
    b"content-type", b"content-encoding",
}  # fmt: skip
# Those by which, or by whose trailers, a client asks for its connection to be kept.
_KEEPING = frozenset((b"connection", b"proxy-connection", b"transfer-encoding"))
_UPGRADING = frozenset((b"connection", b"upgrade", b"http2-settings"))


# No cycle passes through one, and there is one for every request: not for the garbage collector to track.
class Request(msgspec.Struct, gc=False):
    """One request, whole."""

    method: bytes
    target: bytes
    path: bytes
    headers: dict[bytes, bytes]  # those not passed on, and those read
    forwarded: bytes  # those passed on, as they go on the wire
    body: bytes
    keep_alive: bool
    http_1_0: bool
    messages_cut: int = 0  # of the body that came
    bounds: GenerationSpec | None = None  # the server's, of its answer
    length_bound: BoundReason | None = None  # which of them is in its body in place of a length of its own
    limited: bytes = b""  # the same in the words of x-fleetctl-limit
    key_hash: str = ""  # of its key, where something is known of that
    client_name: str = ""  # its key's
    tier: Any = None  # a LaneTier of its lane; None: its lane has no tiers
    retry_mark: RetryMark | None = None  # where its tier has a retry budget
    model: str = ""  # that it is to be served by; "": by whichever the lane has
    adapter: str = ""  # of that model, whose cached prompts are its own; "": none
    model_lines: bytes = b""  # the headers that say so; empty: the fleet has one
    in_place_of: str = ""  # the model it was for, where that one stands in; "": it is for that one
    fallback: Any = None  # the StandIn for its model; None: there is none
    falls_back: bool = False  # and is to serve it now
    wrong: Any = None  # a WrongRequest: why no engine is sent it; None: nothing is

    def clear(self) -> None:
        """Forget what was made of it for a lane that could not serve it."""
        self.messages_cut, self.bounds, self.length_bound, self.limited, self.tier = 0, None, None, b"", None


@dataclass(frozen=True, slots=True)
class BadRequest:
    """What is wrong with a client's bytes, as it is told."""

    status: int
    message: str


class RequestReader:
    """Bytes in, requests out. After a fault nothing more is read."""

    __slots__ = (
        "_body", "_body_bytes", "_forwarded", "_head_bytes", "_headers", "_headers_left", "_limits", "_parser",
        "_ready_bytes", "_target", "begun", "body_bytes_max", "fault", "in_body", "in_head", "ready",
        "wants_continue",
    )  # fmt: skip

    def __init__(self, limits: GatewayLimits, body_bytes_max: int) -> None:
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self.body_bytes_max = body_bytes_max
        self.ready: deque[Request] = deque()
        self._ready_bytes = 0
        self.fault: BadRequest | None = None
        self.wants_continue = False  # the client waits for "100 Continue"
        self.begun = 0  # requests, ever
        self._clear()

    def _clear(self) -> None:
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._forwarded: list[bytes] = []
        self._body: list[bytes] = []
        self._head_bytes = self._body_bytes = 0
        self._headers_left = self._limits.header_count_max
        self.in_head = self.in_body = False

    @property
    def is_between(self) -> bool:
        """Whether no request has been begun and not finished."""
        return not self.in_head and not self.in_body

    def feed(self, data: bytes) -> None:
        """Read bytes; `ready`, `fault` and `wants_continue` say what came of them."""
        size = len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError as exc:
            self._blame(400, f"not HTTP: {exc}")
        if self.in_head:
            self._head_bytes += size
            if self._head_bytes > self._limits.header_bytes_max:
                self._blame(431, "the request's headers are too long")

    @property
    def authorization(self) -> bytes:
        """The key of the request whose body is being read."""
        return self._headers.get(b"authorization", b"")

    def refuse_body(self, status: int, message: str) -> None:
        """Read no more of it."""
        self._body.clear()
        self._blame(status, message)

    def take(self) -> Request:
        """Return the next request."""
        request = self.ready.popleft()
        self._ready_bytes -= len(request.body)
        return request

    def _parse(self, data: bytes) -> None:
        while data and self.fault is None:
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
        passed_on = _UPGRADING | {TRACEPARENT}
        kept = [b"%b: %b\r\n" % header for header in self._headers.items() if header[0] not in passed_on]
        return b"".join((method, b" ", self._target, b" HTTP/1.1\r\n", *self._forwarded, *kept, b"\r\n"))

    def _blame(self, status: int, message: str) -> None:
        if self.fault is None:
            self.fault = BadRequest(status, message)

    # The parser's callbacks: they only note.

    def on_message_begin(self) -> None:
        """Note the first byte of a request."""
        self.in_head = True
        self.begun += 1

    def on_url(self, piece: bytes) -> None:
        """Note a piece of the target."""
        self._target += piece
        if len(self._target) > self._limits.url_bytes_max:
            self._blame(414, "the request's target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header; trailers, which could overrule what was already acted on, are dropped."""
        if self.in_body:
            return
        name = name.lower()
        if name not in _KEPT:
            self._forwarded += (name, b": ", value, b"\r\n")
        else:
            self._headers[name] = value
            if name == TRACEPARENT:  # read here too
                self._forwarded += (name, b": ", value, b"\r\n")
        self._headers_left -= 1
        if self._headers_left < 0:
            self._blame(431, "the request has too many headers")

    def on_headers_complete(self) -> None:
        """Check what the head announces."""
        self.in_head, self.in_body = False, True
        headers = self._headers
        # llhttp has made sure that a length is a number.
        if int(headers.get(b"content-length") or 0) > self.body_bytes_max:
            self._blame(413, "the request's body is too long")
        elif headers.get(b"content-encoding", b"identity").lower() != b"identity":
            self._blame(415, "the request's body is encoded: send it plain, without content-encoding")
        elif b"expect" in headers:
            if headers[b"expect"].lower() == b"100-continue":
                self.wants_continue = True
            else:
                self._blame(417, "this expectation cannot be met")

    def on_body(self, piece: bytes) -> None:
        """Note a piece of the body."""
        self._body.append(piece)
        self._body_bytes += len(piece)
        if self._body_bytes + self._ready_bytes > self.body_bytes_max:
            self._body.clear()
            self._blame(413, "the request's body is too long")

    def on_message_complete(self) -> None:
        """Queue the request. llhttp forgets whether to keep the connection right after this call."""
        parser = self._parser
        if parser.should_upgrade():
            return
        if len(self.ready) >= self._limits.pipelined_max:
            self._blame(400, "too many pipelined requests")
        if self.fault is None:
            self._ready_bytes += self._body_bytes
            target, headers, body = self._target, self._headers, self._body
            keep_alive = parser.should_keep_alive()
            # Only who asks for it keeps a connection of HTTP/1.0; the version is slow to ask for.
            may_be_1_0 = not keep_alive or not _KEEPING.isdisjoint(headers)
            self.ready.append(
                Request(
                    method=parser.get_method(),
                    target=target,
                    path=target.partition(b"?")[0],
                    headers=headers,
                    forwarded=b"".join(self._forwarded),
                    body=body[0] if len(body) == 1 else b"".join(body),
                    keep_alive=keep_alive,
                    http_1_0=may_be_1_0 and parser.get_http_version() == "1.0",
                )
            )
        self.wants_continue = False
        self._clear()

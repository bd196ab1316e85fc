"""What one client gets: a head, a body whole or in pieces, an end. Nothing is written before it is certain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import msgspec

from fleetctl.core.dispatch.state import RequestEvent
from fleetctl.gateway import wire
from fleetctl.gateway.replica_errors import client_error, client_status
from fleetctl.gateway.request_ids import REQUEST_ID

if TYPE_CHECKING:
    from fleetctl.core.admission.refusal import Refusal
    from fleetctl.gateway.client import ClientConnection


# Of a replica's headers: hop by hop, written with the body, or the gateway's own.
_SET_ANEW = wire.HOP_BY_HOP | {b"content-length", REQUEST_ID}
# What an engine tells whoever stands before it: a proxy, or a browser that reached it itself. Each has others of them.
_OF_HOP = {b"server", b"vary", b"x-accel-buffering"}
_OF_BROWSERS = b"access-control-"
# llama.cpp begins a stream of several prompts with it, and clients of OpenAI fail at it.
_NULL_EVENT = b"data: null\n\n"
_OF_BODY = (b"content-type", b"content-encoding")  # of an error that is written anew
_OWN = b"x-fleetctl-"  # the gateway's word, whatever an engine says
_DROPPED, _BEGINNINGS = _SET_ANEW | _OF_HOP, (_OWN, _OF_BROWSERS)
# What stands before the values of its own headers.
_ID, _LANE = REQUEST_ID + b": ", b"\r\nx-fleetctl-lane: "
_REPLICA, _DEGRADED = b"\r\nx-fleetctl-replica: ", b"\r\nx-fleetctl-degraded: "
_LIMITED, _TIER = b"\r\nx-fleetctl-limit: ", b"\r\nx-fleetctl-tier: "


_FAILURES = {
    RequestEvent.CLOSED: (502, "the replica closed the connection before it answered"),
    RequestEvent.STALE_CONNECTION: (502, "the replica closed the connection before it answered"),
    RequestEvent.PROTOCOL_ERROR: (
        502,
        "the replica's answer is not what was asked for: no HTTP, without end, compressed, or a redirect",
    ),
    RequestEvent.STALLED: (504, "the replica stalled"),
    RequestEvent.PREEMPTED: (504, "the replica's KV cache is full, and it has put this stream aside for too long"),
    RequestEvent.UNHEALTHY: (504, "the replica stalled"),
    RequestEvent.TIMED_OUT: (504, "the request took too long"),
}


class PieceSink(Protocol):
    """What takes the pieces of a response: the client's connection, or what holds them back before it."""

    def write_piece(self, data: bytes) -> None:
        """Write a piece; not empty."""
        ...

    def end_pieces(self) -> None:
        """Write the end of the response."""
        ...


class ClientResponse:
    """The response to one request. A replica's answer is held back until it is begun, so that another may replace it."""

    __slots__ = (
        "_client", "_held", "_held_bytes", "_lane_name", "_whole_bytes_max", "degraded", "headers", "limited", "model", "replica_id",
        "request_id", "sink", "status", "tier",
    )  # fmt: skip

    def __init__(self, client: ClientConnection, lane_name: str, whole_bytes_max: int) -> None:
        self._client = client
        self.sink: PieceSink = client  # of pieces
        self._lane_name = lane_name.encode()
        self._whole_bytes_max = whole_bytes_max
        self.degraded = b""  # what the ladder cut
        self.limited = b""  # the server's bounds that the request has in place of its own
        self.tier = b""  # where there are tiers
        self.model = b""  # the lines that say which serves it, where the fleet has several
        self.request_id = b""
        self.replica_id = b""
        self.status = 0
        self.headers: list[wire.Header] = []
        self._held: list[bytes] = []
        self._held_bytes = 0

    def take_head(self, status: int, headers: list[wire.Header]) -> None:
        """Note a replica's head; what was held of another one's answer is forgotten."""
        self.status = status
        self.headers = headers
        self._held, self._held_bytes = [], 0

    def hold(self, data: bytes) -> bool:
        """Hold a piece back. False: there is too much of it to be held."""
        self._held_bytes += len(data)
        if self._held_bytes > self._whole_bytes_max:
            return False
        self._held.append(data)
        return True

    def held(self) -> bytes:
        """Return what is held back."""
        return b"".join(self._held)

    # A response in pieces.

    def begin(self, data: bytes) -> None:
        """Write the replica's head, what was held back and the next piece, if there is one: there is no way back from here."""
        self._client.begin_pieces(self.status, self._passed_lines())
        if first := b"".join((*self._held, data)).removeprefix(_NULL_EVENT):
            self.sink.write_piece(first)
        self._held = []

    def end(self, last: bytes = b"") -> None:
        """Write the end of a response in pieces."""
        if last:
            self.sink.write_piece(last)
        self.sink.end_pieces()

    def cut(self) -> None:
        """Break off: an answer without events has no other honest end."""
        self._client.cut()

    # A whole response.

    def whole(self, body: bytes) -> None:
        """Write a body under the replica's status and headers."""
        self._client.reply(self.status, self._passed_lines(), body)

    def rejected(self, body: bytes) -> None:
        """Write a replica's error, whatever its engine's way of spelling one."""
        status = client_status(self.status)
        self.headers = [header for header in self.headers if header[0] not in _OF_BODY] + [wire.JSON]
        self.status = status
        self.whole(msgspec.json.encode(client_error(status, body)))

    def error(self, status: int, error: dict[str, object]) -> None:
        """Write an error of the gateway's own."""
        self._client.reply(status, self._lines([wire.lines(wire.JSON)]), msgspec.json.encode(error))

    def failure(self, reason: RequestEvent) -> None:
        """Write that the last replica failed the request, and how."""
        status, message = _FAILURES[reason]
        kind = "timeout_error" if status == 504 else "server_error"
        self.error(status, wire.error_object(message, kind=kind, code=status))

    def refusal(self, refusal: Refusal, *, retry_after_s: float) -> None:
        """Write a 429 that says when to come back, or a 503 where nothing is there to serve the request.

        OpenAI's clients go by the milliseconds, which no second's edge brings back together; others by whole seconds.
        """
        lines = wire.lines(
            wire.JSON,
            (b"retry-after", b"%d" % math.ceil(retry_after_s)),
            (b"retry-after-ms", b"%d" % math.ceil(1000.0 * retry_after_s)),
            (b"x-fleetctl-reason", refusal.value.encode()),
        )
        kind = "server_error" if refusal.status >= 500 else "rate_limit_error"
        message = f"lane {self._lane_name.decode()}: {refusal.message}"
        body = wire.error_body(message, kind=kind, code=refusal.value)
        self._client.reply(refusal.status, self._lines([lines]), body)

    def _passed_lines(self) -> bytes:
        pieces: list[bytes] = []
        for name, value in self.headers:
            if name not in _DROPPED and not name.startswith(_BEGINNINGS):
                pieces += (name, b": ", value, b"\r\n")
        return self._lines(pieces)

    def _lines(self, pieces: list[bytes]) -> bytes:
        """Return these pieces of a head, and the gateway's own headers after them."""
        pieces += (_ID, self.request_id, _LANE, self._lane_name)
        if self.replica_id:
            pieces += (_REPLICA, self.replica_id)
        if self.degraded:
            pieces += (_DEGRADED, self.degraded)
        if self.tier:
            pieces += (_TIER, self.tier)
        if self.model:
            pieces.append(self.model)
        if self.limited:
            pieces += (_LIMITED, self.limited)
        pieces.append(b"\r\n")
        return b"".join(pieces)

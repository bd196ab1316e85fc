"""Why a replica's stream cannot go on: what its error event says, or what it lacks."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from fleetctl.gateway import wire
from fleetctl.gateway.replica_errors import shaped_error, status_in_stream

_ERROR = re.compile(rb'^data:\s*(\{\s*"(?:error"\s*:\s*\{|object"\s*:\s*"error").*)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class StreamFault:
    """Why a stream cannot go on as it is."""

    status: int  # what it would have been as an HTTP status
    error: dict[str, Any]  # in OpenAI's shape
    is_loss: bool = False  # the replica did not report it: it just ended

    def because(self, obstacle: str) -> dict[str, Any]:
        """Return the error with why no other replica goes on, if that is said."""
        inner = self.error.get("error")
        if not obstacle or not isinstance(inner, dict):
            return self.error
        message = str(inner.get("message") or "the replica failed")
        return {"error": inner | {"message": f"{message}; the stream cannot go on elsewhere: {obstacle}"}}


# The answer is over though its replica would go on: a continuation came upon the client's stop string.
STOPPED = StreamFault(200, {})
# It repeats itself, in a lane that ends such answers.
LOOPED = StreamFault(200, {})


def truncated() -> StreamFault:
    """Return the fault of a stream that ended before its answer did."""
    return replace(_bad_gateway("the replica was lost"), is_loss=True)


def too_long() -> StreamFault:
    """Return the fault of a stream with an event longer than the gateway holds."""
    return _bad_gateway("an event of the replica is too long")


def find_fault(events: bytes) -> tuple[StreamFault, int] | None:
    """Return the fault that the first error event reports, and where that event begins; None: there is none."""
    found = _ERROR.search(events) if events.find(b'"error"') >= 0 else None
    return (_reported(found[1]), found.start()) if found is not None else None


class _Whole(msgspec.Struct):
    choices: list[msgspec.Raw] = []
    error: msgspec.Raw = msgspec.Raw(b"null")


_decode_whole = msgspec.json.Decoder(_Whole).decode


def whole_fault(body: bytes) -> StreamFault | None:
    """Return what a whole body under 200 has in place of an answer: an error, or no choice at all. None: it is an answer.

    The client of `load` takes the same for none.
    """
    try:
        whole = _decode_whole(body)
        error = None if bytes(whole.error) == b"null" else msgspec.json.decode(whole.error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _bad_gateway("the replica sent an unreadable answer")
    if error is not None:
        return _fault_of(error)
    return None if whole.choices else _bad_gateway("the replica sent an answer without any choice")


def _fault_of(inner: object) -> StreamFault:
    status = status_in_stream(inner)
    return StreamFault(status, shaped_error(status, inner))


def _reported(raw: bytes) -> StreamFault:
    try:
        event = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _bad_gateway("the replica sent an unreadable error")
    error = event.get("error") if isinstance(event, dict) else None
    return _fault_of(error if isinstance(error, dict) else event)


def _bad_gateway(message: str) -> StreamFault:
    return StreamFault(502, wire.error_object(message, kind="server_error", code=502))

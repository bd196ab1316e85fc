"""Passes a stream of events on, looking at each only as far as timing and honesty need."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl.gateway import wire

if TYPE_CHECKING:
    from fleetctl.gateway.limits import GatewayLimits

# A non-empty text of a delta. Inside JSON strings quotes are escaped, so an answer that talks about these keys does
# not match.
_CONTENT = re.compile(rb'"(?:content|text|reasoning_content|reasoning|arguments)"\s*:\s*"(?!")')
_FINISH = re.compile(rb'"finish_reason"\s*:\s*"')
_ERROR = re.compile(rb'^data:\s*(\{\s*"(?:error"\s*:\s*\{|object"\s*:\s*"error").*)$', re.MULTILINE)
_DONE = re.compile(rb"^data:\s*\[DONE\]\s*", re.MULTILINE)
_PROMPT_TOKENS = re.compile(rb'"prompt_tokens"\s*:\s*(\d+)')
_COMPLETION_TOKENS = re.compile(rb'"completion_tokens"\s*:\s*(\d+)')

Splice = Callable[[bytes], bytes]


class Usage(msgspec.Struct, frozen=True):
    """The token usage that the engine reported."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class StreamFault:
    """Why a stream cannot go on as it is."""

    status: int  # what it would have been as an HTTP status
    error: dict[str, Any]  # in OpenAI's shape


def read_usage(data: bytes) -> Usage | None:
    """Return the last usage object in `data`, if any."""
    start = data.rfind(b'"usage"')
    if start < 0:
        return None
    prompt = _PROMPT_TOKENS.search(data, start)
    completion = _COMPLETION_TOKENS.search(data, start)
    if prompt is None:
        return None
    return Usage(int(prompt[1]), int(completion[1]) if completion else 0)


def truncated() -> StreamFault:
    """Return the fault of a stream that ended before its answer did."""
    return StreamFault(502, wire.error_object("the replica was lost", kind="server_error", code=502))


class EventRelay:
    """One client's stream, over however many replicas it takes.

    `feed` returns complete events to be written, or the fault that ends this replica's part. Events that all carry
    content cost three counts of short patterns; any other is looked at closely.
    """

    __slots__ = (
        "_empty", "_finish_seen", "_limits", "_marker", "_pending", "_previous", "_sent", "_sent_bytes", "fault", "is_done",
        "new_tokens", "splice", "tokens", "usage",
    )  # fmt: skip

    def __init__(self, limits: GatewayLimits, *, keeps_transcript: bool) -> None:
        self._limits = limits
        self._marker = self._empty = b""  # how this engine spells the key before a token
        self._pending = b""
        self._previous = b""
        self._sent: list[bytes] | None = [] if keeps_transcript else None
        self._sent_bytes = 0
        self.splice: Splice | None = None  # rewrites a continuation's events
        self.fault: StreamFault | None = None
        self._finish_seen = False
        self.is_done = False  # [DONE] was seen
        self.tokens = 0  # content events
        self.new_tokens = 0  # of the last feed
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> bytes:
        """Return the complete events to pass on; sets `new_tokens` and, at a fault, `fault`."""
        if self._pending:
            data = self._pending + data
            self._pending = b""
        if not data.endswith(b"\n\n"):
            data = self._cut(data)
        if self.splice is not None and data:
            data = self.splice(data)
        self.new_tokens = 0
        if not data:
            return b""
        marker = self._marker
        new = data.count(marker) - data.count(self._empty) if marker else 0
        if new != data.count(b"\n\n") or not new:
            data, new = self._look(data)
        self._previous = data
        self.new_tokens = new
        self.tokens += new
        if self._sent is not None:
            self._sent.append(data)
            self._sent_bytes += len(data)
            if self._sent_bytes > self._limits.transcript_bytes_max:
                self._sent = None
        return data

    def restart(self, splice: Splice) -> None:
        """Get ready for the part another replica will send."""
        self._pending = b""
        self._marker = self._empty = b""
        self.fault = None
        self.splice = splice

    @property
    def transcript(self) -> bytes | None:
        """Everything passed on so far. None: not kept, or too long."""
        return b"".join(self._sent) if self._sent is not None else None

    @property
    def is_finished(self) -> bool:
        """Whether a finish_reason was passed on; it may have come with the last content."""
        return self._finish_seen or _FINISH.search(self._previous) is not None

    def _cut(self, data: bytes) -> bytes:
        end = wire.last_boundary(data)
        self._pending = data[end:]
        if len(self._pending) > self._limits.event_bytes_max:
            self.fault = StreamFault(
                502, wire.error_object("an event of the replica is too long", kind="server_error", code=502)
            )
        return data[:end]

    def _look(self, data: bytes) -> tuple[bytes, int]:
        error = _ERROR.search(data)
        if error is not None:
            self.fault = _engine_fault(error[1])
            data = data[: error.start()]
        if not self._finish_seen:
            self._finish_seen = self.is_finished or _FINISH.search(data) is not None
        self.usage = read_usage(data) or self.usage
        done = _DONE.search(data)
        if done is not None:
            if self._finish_seen:
                self.is_done = True
            else:
                # vLLM ends aborted streams so: with [DONE], but without a finish_reason.
                self.fault = self.fault or truncated()
                data = data[: done.start()]
        found = _CONTENT.findall(data)
        if found:
            self._marker = found[0][1:]
            self._empty = self._marker + b'"'
        return data, len(found)


def _engine_fault(raw: bytes) -> StreamFault:
    try:
        event = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return StreamFault(
            502, wire.error_object("the replica sent an unreadable error", kind="server_error", code=502)
        )
    error = event.get("error") if isinstance(event, dict) else None
    inner = error if isinstance(error, dict) else event
    code = inner.get("code") if isinstance(inner, dict) else None
    status = int(code) if isinstance(code, int | str) and str(code).isdigit() and 400 <= int(code) <= 599 else 500
    return StreamFault(status, {"error": inner})

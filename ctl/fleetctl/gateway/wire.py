"""HTTP heads, error bodies and SSE boundaries as bytes; no IO."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

Header = tuple[bytes, bytes]

_STATUS_LINES = {s.value: b"HTTP/1.1 %d %b\r\n" % (s.value, s.phrase.encode()) for s in HTTPStatus}
_CODES = {s.value: s.phrase.lower().replace(" ", "_").replace("-", "_") for s in HTTPStatus}
_KINDS = {401: "authentication_error", 429: "rate_limit_error", 504: "timeout_error"}
# RFC 9110, section 7.6.1.
HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
JSON: Header = (b"content-type", b"application/json")
CLOSE = b"connection: close\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
_EVENT = re.compile(rb".*?\n\r?\n", re.DOTALL)
DONE_EVENT = b"data: [DONE]\n\n"


def status_line(status: int) -> bytes:
    """Return the first line of a response."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status


def lines(*headers: Header) -> bytes:
    """Return headers as they go on the wire."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def post(target: bytes, request_head: bytes, forwarded: bytes, body_bytes: int) -> bytes:
    """Return the head of a request to a replica; `request_head` and `forwarded` are whole lines."""
    return b"POST %b%bcontent-length: %d\r\n%b\r\n" % (target, request_head, body_bytes, forwarded)


def head(status: int, header_lines: bytes) -> bytes:
    """Return a response head, its empty line included."""
    return b"%b%b\r\n" % (status_line(status), header_lines)


def whole(status: int, header_lines: bytes, body: bytes) -> bytes:
    """Return a response with its length."""
    return b"%b%bcontent-length: %d\r\n\r\n%b" % (status_line(status), header_lines, len(body), body)


def chunk(payload: bytes) -> bytes:
    """Return one chunk of a chunked response; `payload` is not empty."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def error_object(message: str, *, kind: str, code: str | int, param: str | None = None) -> dict[str, object]:
    """Return an error in OpenAI's shape. Its code is always a text: of a status, what HTTP calls that."""
    text = code if isinstance(code, str) else _CODES.get(code, f"status_{code}")
    return {"error": {"message": message, "type": kind, "param": param, "code": text}}


def kind_of(status: int) -> str:
    """Return the type of an error with this status."""
    return _KINDS.get(status) or ("server_error" if status >= 500 else "invalid_request_error")


def error_body(message: str, *, kind: str, code: str | int, param: str | None = None) -> bytes:
    """Return an error in OpenAI's shape, as JSON."""
    return msgspec.json.encode(error_object(message, kind=kind, code=code, param=param))


def is_event_stream(headers: Iterable[Header]) -> bool:
    """Whether a response with these headers, names in lower case, comes in events."""
    for name, value in headers:
        if name == b"content-type":
            return value.find(b"event-stream") >= 0
    return False


def events(data: bytes) -> list[bytes]:
    """Return complete SSE events one by one."""
    if data.find(b"\r") >= 0:
        return _EVENT.findall(data)
    return [event + b"\n\n" for event in data.split(b"\n\n") if event]


def last_boundary(data: bytes) -> int:
    """Return where the last complete SSE event in `data` ends; 0: none does."""
    plain = data.rfind(b"\n\n")
    crlf = data.rfind(b"\r\n\r\n")
    if crlf > plain:
        return crlf + 4
    return plain + 2 if plain >= 0 else 0

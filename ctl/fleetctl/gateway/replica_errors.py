"""An error as engines spell it, each in its own way, in the one shape that clients of the gateway meet."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from fleetctl.gateway import wire

# TGI's: a content type that is none of JSON, a request that its validation refuses, one that failed in its model.
# Others say 400 to the first two, and 500.
_STATUSES = {415: 400, 422: 400, 424: 500}
_STATUS_OF_CODE = {str(status): status for status in range(400, 600)}
_BAD_REQUEST = (400, 413)
_MESSAGE_MAX = 2000  # characters; an engine's traceback helps no client
# As vLLM and SGLang, llama.cpp, and TGI say that a request is longer than they hold; none has OpenAI's code for it.
_TOO_LONG = re.compile(
    r"maximum context length|context length of \d+ tokens|longer than the model's context length"
    r"|exceeds the available context size|`inputs` (?:must have less than|tokens \+ `max_new_tokens` must be <=)"
)
# TGI answers in a stream with 422 to everything, so its message has to tell.
_TGI_MESSAGES = (("Input validation error", 400), ("Model is overloaded", 429))


def client_status(status: int) -> int:
    """Return the status that clients get for an engine's."""
    return _STATUSES.get(status, status)


def client_error(status: int, body: bytes) -> dict[str, object]:
    """Return what the body of an engine's error says, in OpenAI's shape; `status` is the one that clients get."""
    try:
        read = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        read = body[: 4 * _MESSAGE_MAX].decode(errors="replace") if not body.lstrip().startswith((b"{", b"<")) else None
    return shaped_error(status, read)


def shaped_error(status: int, read: object) -> dict[str, object]:
    """Return an error, as JSON had it, in OpenAI's shape: `code` and `type` are texts, `param` is a text or null."""
    found = read.get("error", read) if isinstance(read, dict) else read
    inner: dict[str, Any] = found if isinstance(found, dict) else {"message": found}
    text = inner.get("message") or inner.get("detail")
    message = text if isinstance(text, str) and text.strip() else f"the replica answered with {status}"
    code, param = inner.get("code"), inner.get("param")
    if status in _BAD_REQUEST and _TOO_LONG.search(message):
        code, param = "context_length_exceeded", None  # which key an engine blames is its own
    return wire.error_object(
        message[:_MESSAGE_MAX],
        kind=wire.kind_of(status),
        code=code if isinstance(code, str) and code and not code.isdigit() else status,
        param=param if isinstance(param, str) else None,
    )


def status_in_stream(inner: object) -> int:
    """Return what the status of an error that came as an event would have been."""
    if not isinstance(inner, dict):
        return 500
    if inner.get("code") is None and "http_status_code" in inner:
        text = str(inner.get("message"))
        return next((status for begins, status in _TGI_MESSAGES if text.startswith(begins)), 500)
    return client_status(_STATUS_OF_CODE.get(str(inner.get("code")), 500))

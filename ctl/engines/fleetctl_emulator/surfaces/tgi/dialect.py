"""TGI 3.3.7's errors and overload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl_emulator.formats import DONE, event
from fleetctl_emulator.json_responses import as_json
from fleetctl_emulator.refusals import EngineRefusal, RefusalReason

if TYPE_CHECKING:
    from fleetctl_emulator.engine_core import EngineCore
    from fleetctl_emulator.options import EmulatorOptions

_CONCURRENT_DEFAULT = 128  # --max-concurrent-requests
_GUARDED = (
    "/", "/generate", "/generate_stream", "/tokenize", "/v1/chat/completions", "/v1/completions",
)  # fmt: skip
_REFUSALS = {
    RefusalReason.WRONG_TYPE: (415, "Expected request with `Content-Type: application/json`", ""),
    RefusalReason.UNREADABLE: (400, "Failed to parse the request body as JSON: {}", ""),
    RefusalReason.MALFORMED: (422, "Failed to deserialize the JSON body into the target type: {}", ""),
    RefusalReason.INVALID: (422, "Input validation error: {}", "validation"),
    RefusalReason.TOO_LONG: (422, "Input validation error: {}", "validation"),
    RefusalReason.UNKNOWN_MODEL: (404, "{}", "model"),
    RefusalReason.NOT_ENABLED: (403, "{}", "not_enabled"),
    RefusalReason.NOT_EMULATED: (501, "{}", "not_emulated"),
    RefusalReason.OVERLOADED: (429, "Model is overloaded", "overloaded"),
    RefusalReason.SHUTTING_DOWN: (500, "Incomplete generation", "incomplete_generation"),
    RefusalReason.ENGINE_FAILED: (424, "Request failed during generation: the shard failed", "generation"),
    RefusalReason.REFUSING: (503, "unhealthy", "healthcheck"),
}


class TgiDialect:
    """Refuses and limits as TGI does. A stream has begun with 200 before TGI knows whether it is overloaded."""

    server, vary = "", "origin, access-control-request-method, access-control-request-headers"
    metrics_type = "text/plain; charset=utf-8"
    redirects_slashes = False
    warms_up_listening = False

    def __init__(self, *, concurrent_max: int) -> None:
        self._open_max = concurrent_max

    def refuse(self, refusal: EngineRefusal) -> web.Response:
        """Return TGI's error; a body that is none is answered in plain text, by its web framework."""
        status, message, kind = _REFUSALS[refusal.reason]
        if not kind:
            return web.Response(status=status, text=message.format(refusal.message))
        return as_json({"error": message.format(refusal.message), "error_type": kind}, status=status)

    def refuse_in_stream(self, refusal: EngineRefusal, *, is_chat: bool) -> bytes:
        """Return the error event; on the OpenAI routes it has another shape, always 422, and [DONE] behind it."""
        _, message, kind = _REFUSALS[refusal.reason]
        text = message.format(refusal.message)
        if is_chat:
            return event({"error": {"message": text, "http_status_code": 422}}) + DONE
        return event({"error": text, "error_type": kind})

    def is_full(self, engine: EngineCore, *, sequences: int, before_begin: bool) -> bool:
        """Return whether --max-concurrent-requests is reached."""
        return not before_begin and engine.open + sequences > self._open_max

    def needs_key(self, path: str) -> bool:
        """Return whether TGI guards a path."""
        return path in _GUARDED

    def is_inference(self, path: str) -> bool:
        """Return whether a path makes the engine work."""
        return path in _GUARDED and path != "/tokenize"


def concurrent_requests_max(options: EmulatorOptions) -> int:
    """Return --max-concurrent-requests, running and waiting ones together."""
    given = options.max_queued_requests
    return _CONCURRENT_DEFAULT if given is None else given

"""TGI 3.3.7's manners: errors, overload and shutdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl.emulator.dialect import ShutdownManners
from fleetctl.emulator.formats import DONE, event
from fleetctl.emulator.refusals import Refusal, Why

if TYPE_CHECKING:
    from fleetctl.emulator.engine import Engine
    from fleetctl.emulator.options import Options

_CONCURRENT_DEFAULT = 128  # --max-concurrent-requests
_DRAIN_DEFAULT_S = 90.0  # --graceful-termination-timeout
_GUARDED = (
    "/", "/generate", "/generate_stream", "/tokenize", "/v1/chat/completions", "/v1/completions",
)  # fmt: skip
_SAID = {
    Why.MALFORMED: (422, "", ""),
    Why.INVALID: (422, "Input validation error: {}", "validation"),
    Why.TOO_LONG: (422, "Input validation error: {}", "validation"),
    Why.UNKNOWN_MODEL: (404, "{}", "model"),
    Why.OVERLOADED: (429, "Model is overloaded", "overloaded"),
    Why.SHUTTING_DOWN: (500, "Incomplete generation", "incomplete_generation"),
    Why.ENGINE_FAILED: (424, "Request failed during generation: the shard failed", "generation"),
    Why.REFUSING: (503, "unhealthy", "healthcheck"),
}


class TgiDialect:
    """Refuses, limits and ends as TGI does. A stream has begun with 200 before TGI knows whether it is overloaded."""

    name = "tgi"
    warms_up_listening = False

    def __init__(self, options: Options) -> None:
        drain_s = _DRAIN_DEFAULT_S if options.shutdown_timeout_s is None else options.shutdown_timeout_s
        self.manners = ShutdownManners(drain_s=drain_s, refuses_new=False, keeps_listening=False, is_healthy=True)
        given = options.max_queued_requests
        self._open_max = _CONCURRENT_DEFAULT if given is None else given

    @property
    def concurrent_max(self) -> int:
        """Return --max-concurrent-requests."""
        return self._open_max

    def refuse(self, refusal: Refusal) -> web.Response:
        """Return TGI's error; a body that does not parse is answered in plain text, by its web framework."""
        status, message, kind = _SAID[refusal.why]
        if refusal.why is Why.MALFORMED:
            text = f"Failed to deserialize the JSON body into the target type: {refusal.message}"
            return web.Response(status=status, text=text)
        return web.json_response({"error": message.format(refusal.message), "error_type": kind}, status=status)

    def refuse_in_stream(self, refusal: Refusal, *, is_chat: bool) -> bytes:
        """Return the error event; on the OpenAI routes it has another shape, always 422, and [DONE] behind it."""
        _, message, kind = _SAID[refusal.why]
        text = message.format(refusal.message)
        if is_chat:
            return event({"error": {"message": text, "http_status_code": 422}}) + DONE
        return event({"error": text, "error_type": kind})

    def is_full(self, engine: Engine, *, sequences: int, before_begin: bool) -> bool:
        """Return whether --max-concurrent-requests is reached."""
        return not before_begin and engine.open + sequences > self._open_max

    def needs_key(self, path: str) -> bool:
        """Return whether TGI guards a path."""
        return path in _GUARDED

    def is_inference(self, path: str) -> bool:
        """Return whether a path makes the engine work."""
        return path in _GUARDED and path != "/tokenize"

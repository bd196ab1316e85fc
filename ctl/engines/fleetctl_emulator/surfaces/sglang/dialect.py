"""SGLang 0.5.23's errors and overload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl_emulator.formats import DONE, event
from fleetctl_emulator.json_responses import as_json
from fleetctl_emulator.refusals import EngineRefusal, RefusalReason

if TYPE_CHECKING:
    from aiohttp import web

    from fleetctl_emulator.engine_core import EngineCore
    from fleetctl_emulator.options import EmulatorOptions

_REFUSALS = {
    RefusalReason.WRONG_TYPE: (400, "Bad Request", ""),
    RefusalReason.UNREADABLE: (400, "Bad Request", ""),
    RefusalReason.MALFORMED: (400, "Bad Request", ""),
    RefusalReason.INVALID: (400, "BadRequestError", ""),
    RefusalReason.TOO_LONG: (400, "BadRequestError", "The input is longer than the model's context length."),
    RefusalReason.UNKNOWN_MODEL: (404, "NotFoundError", ""),
    RefusalReason.NOT_ENABLED: (403, "Forbidden", ""),
    RefusalReason.NOT_EMULATED: (501, "Not Implemented", ""),
    RefusalReason.OVERLOADED: (503, "SERVICE_UNAVAILABLE", "The request queue is full."),
    RefusalReason.SHUTTING_DOWN: (500, "InternalServerError", "The server is shutting down."),
    RefusalReason.ENGINE_FAILED: (500, "InternalServerError", "The request failed in the scheduler."),
    RefusalReason.REFUSING: (503, "SERVICE_UNAVAILABLE", "The server is not ready."),
}


class SglangDialect:
    """Refuses and limits as SGLang does."""

    server, vary = "uvicorn", "Origin"
    metrics_type = "text/plain; version=0.0.4; charset=utf-8"
    redirects_slashes = True
    warms_up_listening = True

    def __init__(self, options: EmulatorOptions, *, max_model_len: int) -> None:
        self._queued_max = options.max_queued_requests
        self._max_model_len = max_model_len

    def refuse(self, refusal: EngineRefusal) -> web.Response:
        """Return the error, flat."""
        body, status = self._error(refusal)
        return as_json(body, status=status)

    def refuse_in_stream(self, refusal: EngineRefusal, *, is_chat: bool) -> bytes:
        """Return an error event and [DONE]."""
        del is_chat
        return event({"error": self._error(refusal)[0]}) + DONE

    def is_full(self, engine: EngineCore, *, sequences: int, before_begin: bool) -> bool:
        """Return whether --max-queued-requests wait; the running ones do not count."""
        if self._queued_max is None or before_begin:
            return False
        return engine.scheduler.waiting + sequences > self._queued_max

    def needs_key(self, path: str) -> bool:
        """Return whether SGLang guards a path."""
        return not path.startswith(("/health", "/metrics"))

    def is_inference(self, path: str) -> bool:
        """Return whether a path makes the engine work."""
        return path in ("/v1/chat/completions", "/v1/completions")

    def _error(self, refusal: EngineRefusal) -> tuple[dict[str, Any], int]:
        status, kind, message = _REFUSALS[refusal.reason]
        if refusal.reason is RefusalReason.TOO_LONG:
            message = (
                f"The input ({refusal.message} tokens) is longer than the model's context length "
                f"({self._max_model_len} tokens)."
            )
        return {
            "object": "error",
            "message": message or refusal.message,
            "type": kind,
            "param": refusal.param,
            "code": status,
        }, status

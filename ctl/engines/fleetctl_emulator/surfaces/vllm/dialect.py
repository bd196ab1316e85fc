"""vLLM 0.32's errors and overload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl_emulator.formats import DONE, event
from fleetctl_emulator.json_responses import as_json
from fleetctl_emulator.refusals import EngineRefusal, RefusalReason

if TYPE_CHECKING:
    from aiohttp import web

    from fleetctl_emulator.engine_core import EngineCore
    from fleetctl_emulator.options import EmulatorOptions

_STATUS = {
    RefusalReason.WRONG_TYPE: (400, "Bad Request"),
    RefusalReason.MALFORMED: (400, "Bad Request"),
    RefusalReason.INVALID: (400, "BadRequestError"),
    RefusalReason.TOO_LONG: (400, "BadRequestError"),
    RefusalReason.UNKNOWN_MODEL: (404, "NotFoundError"),
    RefusalReason.NOT_ENABLED: (403, "PermissionDeniedError"),
    RefusalReason.NOT_EMULATED: (501, "Not Implemented"),
    RefusalReason.OVERLOADED: (503, "Service Unavailable"),
    RefusalReason.SHUTTING_DOWN: (500, "InternalServerError"),
    RefusalReason.ENGINE_FAILED: (500, "InternalServerError"),
    RefusalReason.REFUSING: (503, "Service Unavailable"),
}
_BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
)
_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
_MESSAGES = {
    RefusalReason.OVERLOADED: _BUSY,
    RefusalReason.REFUSING: _BUSY,
    RefusalReason.SHUTTING_DOWN: _DEAD,
    RefusalReason.ENGINE_FAILED: "Internal server error",
}


class VllmDialect:
    """Refuses and limits as vLLM does.

    vLLM looks at its queue limit twice: before a response begins, by what its front end was last told, and when the
    request enters the engine. So in a burst most rejected streams are HTTP 200 with an error event.
    """

    server, vary = "uvicorn", "Origin"
    metrics_type = "text/plain; version=1.0.0; charset=utf-8"
    redirects_slashes = True
    warms_up_listening = False

    def __init__(self, options: EmulatorOptions, *, max_model_len: int) -> None:
        self._max_model_len = max_model_len
        self._open_max = options.max_queued_requests  # --max-num-queued-reqs: the running ones count too

    def refuse(self, refusal: EngineRefusal) -> web.Response:
        """Return the error in OpenAI's shape; 503 comes without Retry-After, as from vLLM."""
        if refusal.reason is RefusalReason.UNREADABLE:
            return as_json({"detail": refusal.message}, status=400)
        body, status = self._error(refusal)
        return as_json(body, status=status)

    def refuse_in_stream(self, refusal: EngineRefusal, *, is_chat: bool) -> bytes:
        """Return an error event and [DONE]; an aborted stream ends with [DONE] alone."""
        del is_chat
        return DONE if refusal.reason is RefusalReason.SHUTTING_DOWN else event(self._error(refusal)[0]) + DONE

    def is_full(self, engine: EngineCore, *, sequences: int, before_begin: bool) -> bool:
        """Return whether --max-num-queued-reqs is reached."""
        if self._open_max is None:
            return False
        return (engine.open_at_last_step if before_begin else engine.open) + sequences > self._open_max

    def needs_key(self, path: str) -> bool:
        """Return whether vLLM guards a path: /health, /metrics, /version and /load are open."""
        return path.startswith("/v1")

    def is_inference(self, path: str) -> bool:
        """Return whether a path makes the engine work."""
        return path in ("/v1/chat/completions", "/v1/completions")

    def _error(self, refusal: EngineRefusal) -> tuple[dict[str, Any], int]:
        status, kind = _STATUS[refusal.reason]
        message, param = refusal.message or _MESSAGES[refusal.reason], refusal.param
        if refusal.reason is RefusalReason.TOO_LONG:
            message, param = _too_long(int(refusal.message), self._max_model_len), "input_tokens"
        return {"error": {"message": message, "type": kind, "param": param, "code": status}}, status


def _too_long(tokens: int, max_model_len: int) -> str:
    # vLLM's tokenizer stops one token past the limit, so that is all it can say of a longer prompt.
    count = f"at least {max_model_len + 1}" if tokens > max_model_len else str(tokens)
    return (
        f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains {count} input "
        "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
    )

"""SGLang 0.5.23 from outside: errors, overload, health and shutdown; its OpenAI routes are vLLM's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from fleetctl.emulator.dialect import ShutdownManners
from fleetctl.emulator.formats import DONE, event
from fleetctl.emulator.openai_routes import OpenAiRoutes
from fleetctl.emulator.refusals import Refusal, Why

if TYPE_CHECKING:
    from fleetctl.emulator.engine import Engine
    from fleetctl.emulator.front import Front
    from fleetctl.emulator.options import Options

_SAID = {
    Why.MALFORMED: (400, "BadRequestError", ""),
    Why.INVALID: (400, "BadRequestError", ""),
    Why.TOO_LONG: (400, "BadRequestError", "The input is longer than the model's context length."),
    Why.UNKNOWN_MODEL: (404, "NotFoundError", ""),
    Why.OVERLOADED: (503, "SERVICE_UNAVAILABLE", "The request queue is full."),
    Why.SHUTTING_DOWN: (500, "InternalServerError", "The server is shutting down."),
    Why.ENGINE_FAILED: (500, "InternalServerError", "The request failed in the scheduler."),
    Why.REFUSING: (503, "SERVICE_UNAVAILABLE", "The server is not ready."),
}


class SglangDialect:
    """Refuses, limits and ends as SGLang does: it drains without a deadline, unhealthy meanwhile, and takes new work."""

    name = "sglang"
    warms_up_listening = True

    def __init__(self, options: Options, *, max_model_len: int) -> None:
        self.manners = ShutdownManners(
            drain_s=options.shutdown_timeout_s, refuses_new=False, keeps_listening=True, is_healthy=False
        )
        self._queued_max = options.max_queued_requests
        self._max_model_len = max_model_len

    def refuse(self, refusal: Refusal) -> web.Response:
        """Return the error, flat."""
        body, status = self._error(refusal)
        return web.json_response(body=msgspec.json.encode(body), status=status)

    def refuse_in_stream(self, refusal: Refusal, *, is_chat: bool) -> bytes:
        """Return an error event and [DONE]."""
        del is_chat
        return event({"error": self._error(refusal)[0]}) + DONE

    def is_full(self, engine: Engine, *, sequences: int, before_begin: bool) -> bool:
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

    def _error(self, refusal: Refusal) -> tuple[dict[str, Any], int]:
        status, kind, message = _SAID[refusal.why]
        if refusal.why is Why.TOO_LONG:
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


class SglangRoutes:
    """Serves SGLang's routes."""

    def __init__(self, front: Front, options: Options) -> None:
        self._front, self._options = front, options
        self._openai = OpenAiRoutes(front, options, checks_model=False, owner="sglang")

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            *self._openai.routes(),
            web.get("/health", self.health),
            web.get("/health_generate", self.health),
            web.get("/get_model_info", self.model_info),
            web.get("/model_info", self.model_info),
        ]

    async def health(self, _: web.Request) -> web.Response:
        """Say whether the engine serves. A real one generates a token first and takes a second."""
        front = self._front
        is_well = front.is_warm and not (front.is_draining or "unhealthy" in front.board or front.engine.is_stuck)
        return web.Response(status=200 if is_well else 503)

    async def model_info(self, _: web.Request) -> web.Response:
        """Say what is served."""
        return web.json_response(
            {
                "model_path": self._options.model,
                "served_model_name": self._options.served_model_name,
                "tokenizer_path": self._options.model,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": "default",
                "load_format": "auto",
                "reasoning_parser": None,
                "tool_call_parser": None,
                "disaggregation_mode": "null",
            }
        )

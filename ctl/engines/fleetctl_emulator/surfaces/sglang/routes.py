"""SGLang 0.5.23's routes; the OpenAI ones are vLLM's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl_emulator.openai_routes import OpenAiRoutes

if TYPE_CHECKING:
    from fleetctl_emulator.options import EmulatorOptions
    from fleetctl_emulator.service import EmulatorService


class SglangRoutes:
    """Serves SGLang's routes."""

    def __init__(self, service: EmulatorService, options: EmulatorOptions) -> None:
        self._service, self._options = service, options
        self._openai = OpenAiRoutes(service, options, checks_model=False, owner="sglang")

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            *self._openai.routes(),
            web.get("/health", self.health),
            web.get("/health_generate", self.health),
            web.get("/get_model_info", self.model_info),
            web.get("/model_info", self.model_info),
            web.get("/server_info", self.server_info),
        ]

    async def health(self, _: web.Request) -> web.Response:
        """Say whether the engine serves. A real one generates a token first and takes a second."""
        service = self._service
        is_well = service.is_warm and not (
            service.is_draining or "unhealthy" in service.injector or service.engine.is_stuck
        )
        return web.Response(status=200 if is_well else 503)

    async def server_info(self, _: web.Request) -> web.Response:
        """Say which SGLang this looks like, and with what it was started."""
        return web.json_response(
            {
                "model_path": self._options.model,
                "served_model_name": self._options.served_model_name,
                "version": self._options.engine_version,
            }
        )

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

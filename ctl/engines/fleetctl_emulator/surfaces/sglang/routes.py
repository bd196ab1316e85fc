"""SGLang 0.5.23's routes; the OpenAI ones are vLLM's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl_emulator.json_responses import as_json
from fleetctl_emulator.openai_routes import OpenAiRoutes
from fleetctl_emulator.refused_routes import not_emulated
from fleetctl_emulator.sampling_rules import SamplingRules
from fleetctl_emulator.surfaces.sglang.formats import SglangFormat

if TYPE_CHECKING:
    from fleetctl_emulator.options import EmulatorOptions
    from fleetctl_emulator.service import EmulatorService


# What else SGLang serves to clients (srt/entrypoints/http_server.py).
_NOT_EMULATED = (
    ("POST", "/generate"), ("POST", "/classify"), ("POST", "/encode"), ("POST", "/invocations"), ("POST", "/vertex_generate"),
    ("POST", "/tokenize"), ("POST", "/v1/tokenize"), ("POST", "/detokenize"), ("POST", "/v1/detokenize"), ("POST", "/v1/embeddings"),
    ("POST", "/v1/classify"), ("POST", "/v1/rerank"), ("POST", "/v1/score"), ("POST", "/v1/responses"), ("GET", "/v1/responses/{id}"),
    ("POST", "/v1/responses/{id}/cancel"), ("POST", "/v1/messages"), ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/audio/transcriptions"), ("POST", "/api/chat"), ("POST", "/api/generate"), ("POST", "/flush_cache"),
    ("POST", "/abort_request"), ("GET", "/v1/models/{model}"),
)  # fmt: skip


class SglangRoutes:
    """Serves SGLang's routes."""

    def __init__(self, service: EmulatorService, options: EmulatorOptions) -> None:
        self._service, self._options = service, options
        sampling = SamplingRules(vocabulary=service.vocabulary, repetition_max=2.0)
        self._openai = OpenAiRoutes(service, options, sampling=sampling, spelling=SglangFormat, owner="sglang")

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            *self._openai.routes(),
            web.get("/health", self.health),
            web.get("/health_generate", self.health),
            web.get("/get_model_info", self.model_info),
            web.get("/model_info", self.model_info),
            web.get("/server_info", self.server_info),
            *not_emulated(_NOT_EMULATED),
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
        return as_json(
            {
                "model_path": self._options.model,
                "served_model_name": self._options.served_model_name,
                "version": self._options.engine_version,
            }
        )

    async def model_info(self, _: web.Request) -> web.Response:
        """Say what is served."""
        return as_json(
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

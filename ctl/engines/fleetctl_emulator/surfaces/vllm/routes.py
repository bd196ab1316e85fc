"""vLLM 0.32's own routes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from fleetctl_emulator.bodies import chat_generation
from fleetctl_emulator.json_bodies import read_json
from fleetctl_emulator.json_responses import as_json
from fleetctl_emulator.openai_fields import TOKENIZE_CHAT, TOKENIZE_TEXT, chat_body
from fleetctl_emulator.openai_routes import OpenAiRoutes
from fleetctl_emulator.refusals import EngineRefusal, RefusalReason
from fleetctl_emulator.refused_routes import not_emulated, not_enabled
from fleetctl_emulator.sampling_rules import SamplingRules
from fleetctl_emulator.surfaces.vllm import rules
from fleetctl_emulator.surfaces.vllm.formats import VllmFormat, fingerprint
from fleetctl_emulator.tokens import TOKEN_BYTES, Prompt, render_text, token_ids

if TYPE_CHECKING:
    from fleetctl_emulator.options import EmulatorOptions
    from fleetctl_emulator.service import EmulatorService

# What else it serves for a model that generates.
_NOT_EMULATED = (
    ("POST", "/detokenize"), ("POST", "/v1/responses"), ("GET", "/v1/responses/{id}"), ("POST", "/v1/responses/{id}/cancel"),
    ("POST", "/v1/messages"), ("POST", "/v1/messages/count_tokens"), ("POST", "/v1/chat/completions/batch"), ("POST", "/invocations"),
    ("GET", "/docs"), ("GET", "/redoc"), ("GET", "/openapi.json"), ("POST", "/scale_elastic_ep"), ("POST", "/is_scaling_elastic_ep"),
)  # fmt: skip
_SCALE_OUT = ("/v1/chat/completions/render", "/v1/completions/render", "/inference/v1/generate")
_SCALE_OUT_IS_OFF = "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."


class VllmOpenAiRoutes(OpenAiRoutes):
    """Serves OpenAI's routes as vLLM does."""

    def _check_raw_chat(self, value: object) -> None:
        rules.check_chat(value, reads_tools=bool(self._options.tool_call_parser))

    def _check_raw_completion(self, value: object) -> None:
        rules.check_completion(value)

    def _check_model(self, named: str | None) -> None:
        check_model(self._options, named)

    def _card(self) -> dict[str, Any]:
        permission = {
            "id": f"modelperm-{self._service.new_id()}",
            "object": "model_permission",
            "created": int(self._service.now_s()),
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        return super()._card() | {"permission": [permission]}


class VllmRoutes:
    """Serves vLLM's own routes."""

    def __init__(self, service: EmulatorService, options: EmulatorOptions) -> None:
        self._service, self._options = service, options
        sampling = SamplingRules(vocabulary=service.vocabulary, temperature_max=2.0, greedy_is_single=True)
        spelling = partial(VllmFormat, system_fingerprint=fingerprint(options))
        self._openai = VllmOpenAiRoutes(service, options, sampling=sampling, spelling=spelling, owner="vllm")

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            *self._openai.routes(),
            web.get("/health", self.health, allow_head=False),
            web.get("/ping", self.health, allow_head=False),
            web.post("/ping", self.health),
            web.get("/version", self.version, allow_head=False),
            web.get("/load", self.load, allow_head=False),
            web.post("/tokenize", self.tokenize),
            *not_enabled(_SCALE_OUT, _SCALE_OUT_IS_OFF),
            *not_emulated(_NOT_EMULATED),
        ]

    async def health(self, _: web.Request) -> web.Response:
        """Say that the engine lives: also while it drains."""
        return web.Response(status=503 if "unhealthy" in self._service.injector else 200)

    async def version(self, _: web.Request) -> web.Response:
        """Say which vLLM this looks like."""
        return as_json({"version": self._options.engine_version})

    async def load(self, _: web.Request) -> web.Response:
        """Say how many requests are being served."""
        return as_json({"server_load": self._service.in_flight})

    async def tokenize(self, request: web.Request) -> web.Response:
        """Return a prompt's tokens: ids that its bytes in fours are given, and these as text where they are wanted."""
        prompt, wants_text = self._tokenized(await read_json(request))
        content, step = prompt.content, TOKEN_BYTES
        pieces = [content[at : at + step].decode(errors="replace") for at in range(0, len(content), step)]
        ids = token_ids(content, self._service.vocabulary)
        return as_json(
            {
                "count": len(ids),
                "max_model_len": self._service.max_model_len,
                "tokens": ids,
                "token_strs": pieces if wants_text else None,
            }
        )

    def _tokenized(self, value: object) -> tuple[Prompt, bool]:
        """Return the prompt, and whether its tokens are wanted as text too."""
        is_chat = isinstance(value, dict) and value.get("messages") is not None
        body = (TOKENIZE_CHAT if is_chat else TOKENIZE_TEXT)(value, ())
        check_model(self._options, str(body.get("model") or ""))
        wants_text = bool(body.get("return_token_strs"))
        if not is_chat:
            return render_text(str(body["prompt"]).encode(), self._service.texts.of("0")), wants_text
        known = {key: body[key] for key in ("messages", "add_generation_prompt") if key in body}
        return chat_generation(chat_body(known), seed=0, request_id="").prompts[0], wants_text


def check_model(options: EmulatorOptions, named: str | None) -> None:
    """Raise EngineRefusal for a model that is neither the served one nor an adapter of it."""
    served = options.served_model_name
    if named and named != served and named not in options.adapters:
        message = f"The model `{named}` does not exist. Valid aliases: {served}."
        raise EngineRefusal(RefusalReason.UNKNOWN_MODEL, message, param="model")

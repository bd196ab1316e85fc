"""The OpenAI routes that vLLM and SGLang share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl_emulator.bodies import ChatBody, CompletionBody, chat_generation, completion_generation, read_body
from fleetctl_emulator.formats import OpenAiFormat
from fleetctl_emulator.refusals import EngineRefusal, RefusalReason

if TYPE_CHECKING:
    from fleetctl_emulator.options import EmulatorOptions
    from fleetctl_emulator.requests import GenerationRequest
    from fleetctl_emulator.service import EmulatorService


class OpenAiRoutes:
    """Serves the routes that vLLM and SGLang share."""

    def __init__(self, service: EmulatorService, options: EmulatorOptions, *, checks_model: bool, owner: str) -> None:
        self._service, self._options = service, options
        self._checks_model, self._owner = checks_model, owner

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.post("/v1/chat/completions", self.chat),
            web.post("/v1/completions", self.completions),
            web.get("/v1/models", self.models),
        ]

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Answer a chat."""
        body = read_body(ChatBody, await request.read())
        self._check(body)
        generation = chat_generation(body, seed=self._options.seed, request_id=self._id(request, "chatcmpl"))
        return await self._service.respond(
            request, generation, self._format(generation, body.model, is_chat=True), is_chat=True
        )

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Answer a completion."""
        body = read_body(CompletionBody, await request.read())
        self._check(body)
        generation = completion_generation(
            body, self._service.texts, seed=self._options.seed, request_id=self._id(request, "cmpl")
        )
        return await self._service.respond(
            request, generation, self._format(generation, body.model, is_chat=False), is_chat=False
        )

    async def models(self, _: web.Request) -> web.Response:
        """Say what is served."""
        card = {
            "id": self._options.served_model_name,
            "object": "model",
            "created": int(self._service.now_s()),
            "owned_by": self._owner,
            "root": self._options.model,
            "parent": None,
            "max_model_len": self._service.max_model_len,
        }
        adapters = [
            card | {"id": name, "root": where, "parent": self._options.served_model_name, "max_model_len": None}
            for name, where in self._options.adapters.items()
        ]
        return web.json_response({"object": "list", "data": [card, *adapters]})

    def _format(self, generation: GenerationRequest, named: str | None, *, is_chat: bool) -> OpenAiFormat:
        return OpenAiFormat(
            is_chat=is_chat,
            request_id=generation.request_id,
            created_s=int(self._service.now_s()),
            model=named if named and named in self._options.adapters else self._options.served_model_name,
            wants_usage=generation.wants_usage,
            wants_continuous_usage=generation.wants_continuous_usage,
            prompts=len(generation.prompts),
        )

    def _id(self, request: web.Request, kind: str) -> str:
        return f"{kind}-{request.headers.get('X-Request-Id') or self._service.new_id()}"

    def _check(self, body: ChatBody | CompletionBody) -> None:
        """Refuse what vLLM refuses before it looks at the prompt."""
        served = self._options.served_model_name
        if self._checks_model and body.model and body.model != served and body.model not in self._options.adapters:
            raise EngineRefusal(
                RefusalReason.UNKNOWN_MODEL,
                f"The model `{body.model}` does not exist. Valid aliases: {served}.",
                param="model",
            )
        limit, name = body.max_tokens, "max_tokens"
        if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
            limit, name = body.max_completion_tokens, "max_completion_tokens"
        if limit is None:
            return
        if limit > self._service.max_model_len:
            raise EngineRefusal(
                RefusalReason.INVALID,
                f"{name}={limit} cannot be greater than max_model_len={self._service.max_model_len}. "
                "Please request fewer output tokens.",
                param=name,
            )
        if limit < 1:
            raise EngineRefusal(RefusalReason.INVALID, f"{name} must be at least 1, got {limit}.", param=name)
        if body.min_tokens > limit:
            message = f"min_tokens must be less than or equal to max_tokens={limit}, got {body.min_tokens}."
            raise EngineRefusal(RefusalReason.INVALID, message, param="min_tokens")

"""The OpenAI routes that vLLM and SGLang share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from fleetctl_emulator.bodies import ChatBody, CompletionBody, chat_generation, completion_generation
from fleetctl_emulator.formats import ResponseFields
from fleetctl_emulator.json_bodies import read_json
from fleetctl_emulator.json_responses import as_json
from fleetctl_emulator.openai_fields import chat_body, completion_body
from fleetctl_emulator.refusals import EngineRefusal, RefusalReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl_emulator.formats import OpenAiFormat
    from fleetctl_emulator.options import EmulatorOptions
    from fleetctl_emulator.requests import GenerationRequest
    from fleetctl_emulator.sampling_rules import SamplingRules
    from fleetctl_emulator.service import EmulatorService


class OpenAiRoutes:
    """Serves the routes that vLLM and SGLang share; what each refuses and how it spells answers is its own."""

    def __init__(
        self,
        service: EmulatorService,
        options: EmulatorOptions,
        *,
        sampling: SamplingRules,
        spelling: Callable[[ResponseFields], OpenAiFormat],
        owner: str,
    ) -> None:
        self._service, self._options = service, options
        self._sampling, self._spelling, self._owner = sampling, spelling, owner

    def routes(self) -> list[web.RouteDef]:
        """Return the routes; none of FastAPI's answers HEAD by itself."""
        return [
            web.post("/v1/chat/completions", self.chat),
            web.post("/v1/completions", self.completions),
            web.get("/v1/models", self.models, allow_head=False),
        ]

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Answer a chat."""
        value = await read_json(request)
        self._check_raw_chat(value)
        body = chat_body(value)
        self._check(body)
        generation = chat_generation(body, seed=self._options.seed, request_id=self._id(request, "chatcmpl"))
        self._sampling.check(body)
        spelling = self._spelling(self._fields(generation, body.model, is_chat=True))
        return await self._service.respond(request, generation, spelling, is_chat=True)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Answer a completion."""
        value = await read_json(request)
        self._check_raw_completion(value)
        body = completion_body(value)
        self._check(body)
        generation = completion_generation(
            body,
            self._service.texts,
            seed=self._options.seed,
            request_id=self._id(request, "cmpl"),
            vocabulary=self._service.vocabulary,
        )
        self._sampling.check(body)
        spelling = self._spelling(self._fields(generation, body.model, is_chat=False))
        return await self._service.respond(request, generation, spelling, is_chat=False)

    async def models(self, _: web.Request) -> web.Response:
        """Say what is served."""
        card = self._card()
        adapters = [
            card | {"id": name, "root": where, "parent": self._options.served_model_name, "max_model_len": None}
            for name, where in self._options.adapters.items()
        ]
        return as_json({"object": "list", "data": [card, *adapters]})

    def _card(self) -> dict[str, Any]:
        return {
            "id": self._options.served_model_name,
            "object": "model",
            "created": int(self._service.now_s()),
            "owned_by": self._owner,
            "root": self._options.model,
            "parent": None,
            "max_model_len": self._service.max_model_len,
        }

    def _fields(self, generation: GenerationRequest, named: str | None, *, is_chat: bool) -> ResponseFields:
        is_adapter = bool(named) and named in self._options.adapters
        return ResponseFields(
            is_chat=is_chat,
            request_id=generation.request_id,
            created_s=int(self._service.now_s()),
            model=named if named and is_adapter else self._options.served_model_name,
            wants_usage=generation.wants_usage,
            wants_continuous_usage=generation.wants_continuous_usage,
            prompts=len(generation.prompts),
        )

    def _id(self, request: web.Request, kind: str) -> str:
        return f"{kind}-{request.headers.get('X-Request-Id') or self._service.new_id()}"

    def _check_raw_chat(self, value: object) -> None:
        """Refuse what the engine refuses before it looks at types."""

    def _check_raw_completion(self, value: object) -> None:
        """Refuse what the engine refuses before it looks at types."""

    def _check_model(self, named: str | None) -> None:
        """Refuse a model that is not served; SGLang answers to any name."""

    def _check(self, body: ChatBody | CompletionBody) -> None:
        """Refuse what vLLM refuses before it looks at the prompt."""
        self._check_model(body.model)
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
            message = f"max_tokens must be at least 1, got {limit}."
            raise EngineRefusal(RefusalReason.INVALID, message, param="max_tokens")
        if body.min_tokens > limit:
            message = f"min_tokens must be less than or equal to max_tokens={limit}, got {body.min_tokens}."
            raise EngineRefusal(RefusalReason.INVALID, message)

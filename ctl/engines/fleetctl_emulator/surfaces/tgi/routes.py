"""TGI 3.3.7's routes: its own, and the OpenAI ones."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from fleetctl_emulator.bodies import Body, ChatBody, CompletionBody, chat_generation, completion_generation, read_body
from fleetctl_emulator.json_responses import as_json
from fleetctl_emulator.refusals import EngineRefusal, RefusalReason
from fleetctl_emulator.requests import GenerationRequest
from fleetctl_emulator.surfaces.tgi.formats import GenerateFormat, TgiFormat
from fleetctl_emulator.surfaces.tgi.rules import check_sampling
from fleetctl_emulator.tokens import TOKEN_BYTES, render_text, token_ids

if TYPE_CHECKING:
    from fleetctl_emulator.formats import EventFormat
    from fleetctl_emulator.options import EmulatorOptions
    from fleetctl_emulator.service import EmulatorService

_STOP_SEQUENCES_MAX = 4
_CLIENT_BATCH_MAX = 4
# What a request without max_new_tokens may generate before TGI takes stock again (DEFAULT_GENERATION_LENGTH).
_NEW_TOKENS_DEFAULT = 1024
_COMPLETION_TOKENS_DEFAULT = 100


class _Parameters(msgspec.Struct, frozen=True):
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    details: bool = False
    decoder_input_details: bool = False
    return_full_text: bool | None = None
    best_of: int | None = None
    grammar: dict[str, Any] | None = None


class _GenerateBody(msgspec.Struct, frozen=True):
    inputs: str
    parameters: _Parameters = _Parameters()
    stream: bool = False


class _TgiTokenizeBody(msgspec.Struct, frozen=True):
    inputs: str


class TgiRoutes:
    """Serves TGI's routes."""

    def __init__(self, service: EmulatorService, options: EmulatorOptions, *, concurrent_max: int) -> None:
        self._service, self._options, self._concurrent_max = service, options, concurrent_max

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.post("/", self.compatible),
            web.get("/", self.health),
            web.post("/generate", self.generate),
            web.post("/generate_stream", self.generate_stream),
            web.post("/v1/chat/completions", self.chat),
            web.post("/v1/completions", self.completions),
            web.get("/v1/models", self.models),
            web.post("/tokenize", self.tokenize),
            web.get("/info", self.info),
            web.get("/health", self.health),
            web.get("/ping", self.health),
        ]

    async def compatible(self, request: web.Request) -> web.StreamResponse:
        """Answer as /generate or /generate_stream, by the body's `stream`; the former in a list."""
        body = await _read(_GenerateBody, request)
        if body.stream:
            return await self._generate(request, body, is_stream=True)
        response = await self._generate(request, body, is_stream=False)
        if isinstance(response, web.Response) and isinstance(response.body, bytes):
            return web.Response(body=b"[" + response.body + b"]", content_type="application/json")
        return response

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Generate, and answer when all is there."""
        return await self._generate(request, await _read(_GenerateBody, request), is_stream=False)

    async def generate_stream(self, request: web.Request) -> web.StreamResponse:
        """Generate, one event a token."""
        return await self._generate(request, await _read(_GenerateBody, request), is_stream=True)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Answer a chat; `model` is not looked at, as in TGI."""
        body = _continued(await _read(ChatBody, request))
        check_sampling(body)
        generation = self._checked(chat_generation(body, seed=self._options.seed, request_id=""))
        return await self._service.respond(request, generation, self._format(generation, is_chat=True), is_chat=True)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Answer a completion."""
        body = await _read(CompletionBody, request)
        check_sampling(body)
        if body.max_tokens is None:
            body = msgspec.structs.replace(body, max_tokens=_COMPLETION_TOKENS_DEFAULT)
        generation = self._checked(
            completion_generation(
                body,
                self._service.texts,
                seed=self._options.seed,
                request_id="",
                vocabulary=self._service.vocabulary,
            )
        )
        if len(generation.prompts) > _CLIENT_BATCH_MAX:
            raise EngineRefusal(
                RefusalReason.INVALID, f"number of prompts exceeds the maximum batch size of {_CLIENT_BATCH_MAX}"
            )
        return await self._service.respond(request, generation, self._format(generation, is_chat=False), is_chat=True)

    async def models(self, _: web.Request) -> web.Response:
        """Say what is served."""
        name = self._options.served_model_name
        card = {"id": name, "object": "model", "created": 0, "owned_by": name}
        return as_json({"object": "list", "data": [card]})

    async def tokenize(self, request: web.Request) -> web.Response:
        """Return a text's tokens."""
        body = await _read(_TgiTokenizeBody, request)
        raw = body.inputs.encode()
        tokens = []
        for start in range(0, len(raw), TOKEN_BYTES):
            word = raw[start : start + TOKEN_BYTES]
            tokens.append(
                {
                    "id": token_ids(word, self._service.vocabulary)[0],
                    "text": word.decode(errors="replace"),
                    "start": start,
                    "stop": start + len(word),
                }
            )
        return as_json(tokens)

    async def info(self, _: web.Request) -> web.Response:
        """Say how the router was launched."""
        total = self._service.max_model_len
        return as_json(
            {
                "model_id": self._options.served_model_name,
                "model_sha": None,
                "model_pipeline_tag": "text-generation",
                "max_concurrent_requests": self._concurrent_max,
                "max_best_of": 2,
                "max_stop_sequences": _STOP_SEQUENCES_MAX,
                "max_input_tokens": total - 1,
                "max_total_tokens": total,
                "validation_workers": 2,
                "max_client_batch_size": _CLIENT_BATCH_MAX,
                "router": "text-generation-router",
                "version": self._options.engine_version,
                "sha": None,
                "docker_label": None,
            }
        )

    async def health(self, _: web.Request) -> web.Response:
        """Say whether the engine lives."""
        if "unhealthy" in self._service.injector or self._service.engine.is_stuck:
            return as_json({"error": "unhealthy", "error_type": "healthcheck"}, status=503)
        return web.Response()

    async def _generate(self, request: web.Request, body: _GenerateBody, *, is_stream: bool) -> web.StreamResponse:
        parameters = body.parameters
        if not body.inputs:
            raise EngineRefusal(RefusalReason.INVALID, "`inputs` cannot be empty")
        if (parameters.best_of or 1) != 1 or parameters.grammar is not None:
            raise EngineRefusal(RefusalReason.INVALID, "best_of and grammar are not emulated")
        seed = str(self._options.seed if parameters.seed is None else parameters.seed)
        generation = GenerationRequest(
            prompts=(render_text(body.inputs.encode(), self._service.texts.of(seed)),),
            seed=seed,
            max_tokens=parameters.max_new_tokens,
            stop=tuple(parameters.stop),
            is_stream=is_stream,
        )
        before = body.inputs if parameters.return_full_text else ""
        spelling: EventFormat = GenerateFormat(has_details=parameters.details, before=before)
        return await self._service.respond(request, self._checked(generation), spelling, is_chat=False)

    def _checked(self, generation: GenerationRequest) -> GenerationRequest:
        """Refuse what TGI's validation refuses, and fill in its default length."""
        total = self._service.max_model_len
        if "" in generation.stop:
            raise EngineRefusal(RefusalReason.INVALID, "`stop` cannot contain an empty string")
        if len(generation.stop) > _STOP_SEQUENCES_MAX:
            message = f"`stop` supports up to {_STOP_SEQUENCES_MAX} stop sequences. Given: {len(generation.stop)}"
            raise EngineRefusal(RefusalReason.INVALID, message)
        if generation.max_tokens is not None and generation.max_tokens < 1:
            raise EngineRefusal(RefusalReason.INVALID, "`max_new_tokens` must be strictly positive")
        longest = max(prompt.tokens for prompt in generation.prompts)
        if longest > total - 1:
            raise EngineRefusal(
                RefusalReason.INVALID, f"`inputs` must have less than {total - 1} tokens. Given: {longest}"
            )
        if generation.max_tokens is None:
            return dataclasses.replace(generation, max_tokens=min(total - longest, _NEW_TOKENS_DEFAULT))
        if longest + generation.max_tokens > total:
            message = (
                f"`inputs` tokens + `max_new_tokens` must be <= {total}. "
                f"Given: {longest} `inputs` tokens and {generation.max_tokens} `max_new_tokens`"
            )
            raise EngineRefusal(RefusalReason.INVALID, message)
        return generation

    def _format(self, generation: GenerationRequest, *, is_chat: bool) -> TgiFormat:
        return TgiFormat(
            is_chat=is_chat,
            created_s=int(self._service.now_s()),
            model=self._options.served_model_name,
            wants_usage=generation.wants_usage,
        )


async def _read(kind: type[Body], request: web.Request) -> Body:
    """Return the body as axum does: the content type first, then JSON, then each value's type."""
    media = request.headers.get("Content-Type", "").lower().split(";", maxsplit=1)[0].strip()
    if media != "application/json" and not (media.startswith("application/") and media.endswith("+json")):
        raise EngineRefusal(RefusalReason.WRONG_TYPE)
    return read_body(kind, await request.read())


def _continued(body: ChatBody) -> ChatBody:
    """Return a chat as TGI renders it: a last message of the assistant is gone on from, its end trimmed, flag or not."""
    last = body.messages[-1] if body.messages else None
    if last is None or last.role != "assistant" or not isinstance(last.content, str):
        return msgspec.structs.replace(body, continue_final_message=False, add_generation_prompt=True)
    trimmed = msgspec.structs.replace(last, content=last.content.rstrip())
    return msgspec.structs.replace(
        body, messages=[*body.messages[:-1], trimmed], continue_final_message=True, add_generation_prompt=False
    )

"""vLLM 0.32 from outside: routes, errors, overload and shutdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from fleetctl.emulator.bodies import ChatBody, CompletionBody, Message, chat_ask, completion_ask, read_body
from fleetctl.emulator.dialect import ShutdownManners
from fleetctl.emulator.formats import DONE, OpenAiFormat, event
from fleetctl.emulator.refusals import Refusal, Why
from fleetctl.emulator.tokens import TOKEN_BYTES, Prompt, render_text

if TYPE_CHECKING:
    from fleetctl.emulator.engine import Engine
    from fleetctl.emulator.front import Front
    from fleetctl.emulator.options import Options

VERSION = "0.32.0"
_STATUS = {
    Why.MALFORMED: (400, "Bad Request"),
    Why.INVALID: (400, "BadRequestError"),
    Why.TOO_LONG: (400, "BadRequestError"),
    Why.UNKNOWN_MODEL: (404, "NotFoundError"),
    Why.OVERLOADED: (503, "Service Unavailable"),
    Why.SHUTTING_DOWN: (500, "InternalServerError"),
    Why.ENGINE_FAILED: (500, "InternalServerError"),
    Why.REFUSING: (503, "Service Unavailable"),
}
_BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
)
_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
_MESSAGES = {
    Why.OVERLOADED: _BUSY,
    Why.REFUSING: _BUSY,
    Why.SHUTTING_DOWN: _DEAD,
    Why.ENGINE_FAILED: "Internal server error",
}


class VllmDialect:
    """Refuses, limits and ends as vLLM does.

    vLLM looks at its queue limit twice: before a response begins, by what its front end was last told, and when the
    request enters the engine. So in a burst most rejected streams are HTTP 200 with an error event.
    """

    name = "vllm"
    warms_up_listening = False

    def __init__(self, options: Options, *, max_model_len: int) -> None:
        drain_s = options.shutdown_timeout_s or 0.0
        self.manners = ShutdownManners(drain_s=drain_s, refuses_new=True, keeps_listening=True, is_healthy=True)
        self._max_model_len = max_model_len
        queued = options.max_queued_requests
        # --max-num-queued-reqs counts the running ones too.
        self._open_max = None if queued is None else queued + options.max_num_seqs

    def refuse(self, refusal: Refusal) -> web.Response:
        """Return the error in OpenAI's shape; 503 comes without Retry-After, as from vLLM."""
        body, status = self._error(refusal)
        return web.json_response(body=msgspec.json.encode(body), status=status)

    def refuse_in_stream(self, refusal: Refusal, *, is_chat: bool) -> bytes:
        """Return an error event and [DONE]; an aborted stream ends with [DONE] alone."""
        del is_chat
        return DONE if refusal.why is Why.SHUTTING_DOWN else event(self._error(refusal)[0]) + DONE

    def is_full(self, engine: Engine, *, sequences: int, before_begin: bool) -> bool:
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

    def _error(self, refusal: Refusal) -> tuple[dict[str, Any], int]:
        status, kind = _STATUS[refusal.why]
        message, param = refusal.message or _MESSAGES[refusal.why], refusal.param
        if refusal.why is Why.TOO_LONG:
            message, param = _too_long(int(refusal.message), self._max_model_len), "input_tokens"
        return {"error": {"message": message, "type": kind, "param": param, "code": status}}, status


def _too_long(tokens: int, max_model_len: int) -> str:
    # vLLM's tokenizer stops one token past the limit, so that is all it can say of a longer prompt.
    count = f"at least {max_model_len + 1}" if tokens > max_model_len else str(tokens)
    return (
        f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains {count} input "
        "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
    )


class OpenAiRoutes:
    """Serves the routes that vLLM and SGLang share."""

    def __init__(self, front: Front, options: Options, *, checks_model: bool, owner: str) -> None:
        self._front, self._options = front, options
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
        ask = chat_ask(body, seed=self._options.seed, request_id=self._id(request, "chatcmpl"))
        return await self._front.respond(request, ask, self._format(ask, is_chat=True), is_chat=True)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Answer a completion."""
        body = read_body(CompletionBody, await request.read())
        self._check(body)
        ask = completion_ask(body, self._front.texts, seed=self._options.seed, request_id=self._id(request, "cmpl"))
        return await self._front.respond(request, ask, self._format(ask, is_chat=False), is_chat=False)

    async def models(self, _: web.Request) -> web.Response:
        """Say what is served."""
        card = {
            "id": self._options.served_model_name,
            "object": "model",
            "created": int(self._front.now_s()),
            "owned_by": self._owner,
            "root": self._options.model,
            "parent": None,
            "max_model_len": self._front.max_model_len,
        }
        return web.json_response({"object": "list", "data": [card]})

    def _format(self, ask: Any, *, is_chat: bool) -> OpenAiFormat:  # noqa: ANN401  # see asks.Ask
        return OpenAiFormat(
            is_chat=is_chat,
            request_id=ask.request_id,
            created_s=int(self._front.now_s()),
            model=self._options.served_model_name,
            wants_usage=ask.wants_usage,
            wants_continuous_usage=ask.wants_continuous_usage,
            prompts=len(ask.prompts),
        )

    def _id(self, request: web.Request, kind: str) -> str:
        return f"{kind}-{request.headers.get('X-Request-Id') or self._front.new_id()}"

    def _check(self, body: ChatBody | CompletionBody) -> None:
        """Refuse what vLLM refuses before it looks at the prompt."""
        served = self._options.served_model_name
        if self._checks_model and body.model and body.model != served:
            raise Refusal(
                Why.UNKNOWN_MODEL,
                f"The model `{body.model}` does not exist. Valid aliases: {served}.",
                param="model",
            )
        limit, name = body.max_tokens, "max_tokens"
        if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
            limit, name = body.max_completion_tokens, "max_completion_tokens"
        if limit is None:
            return
        if limit > self._front.max_model_len:
            raise Refusal(
                Why.INVALID,
                f"{name}={limit} cannot be greater than max_model_len={self._front.max_model_len}. "
                "Please request fewer output tokens.",
                param=name,
            )
        if limit < 1:
            raise Refusal(Why.INVALID, f"{name} must be at least 1, got {limit}.", param=name)
        if body.min_tokens > limit:
            message = f"min_tokens must be less than or equal to max_tokens={limit}, got {body.min_tokens}."
            raise Refusal(Why.INVALID, message, param="min_tokens")


class _TokenizeBody(msgspec.Struct, frozen=True):
    prompt: str | None = None
    messages: list[Message] | None = None
    add_generation_prompt: bool = True


class VllmRoutes:
    """Serves vLLM's own routes."""

    def __init__(self, front: Front, options: Options) -> None:
        self._front = front
        self._openai = OpenAiRoutes(front, options, checks_model=True, owner="vllm")

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            *self._openai.routes(),
            web.get("/health", self.health),
            web.get("/ping", self.health),
            web.post("/ping", self.health),
            web.get("/version", self.version),
            web.get("/load", self.load),
            web.post("/tokenize", self.tokenize),
        ]

    async def health(self, _: web.Request) -> web.Response:
        """Say that the engine lives: also while it drains."""
        return web.Response(status=503 if "unhealthy" in self._front.board else 200)

    async def version(self, _: web.Request) -> web.Response:
        """Say which vLLM this looks like."""
        return web.json_response({"version": VERSION})

    async def load(self, _: web.Request) -> web.Response:
        """Say how many requests are being served."""
        return web.json_response({"server_load": self._front.in_flight})

    async def tokenize(self, request: web.Request) -> web.Response:
        """Return a prompt's tokens: its bytes in fours, as numbers."""
        body = read_body(_TokenizeBody, await request.read())
        prompt = _tokenized(body, self._front)
        step = TOKEN_BYTES
        ids = [int.from_bytes(prompt.content[at : at + step], "big") for at in range(0, len(prompt.content), step)]
        return web.json_response(
            {"count": len(ids), "max_model_len": self._front.max_model_len, "tokens": ids, "token_strs": None}
        )


def _tokenized(body: _TokenizeBody, front: Front) -> Prompt:
    if body.messages is None:
        return render_text((body.prompt or "").encode(), front.texts.of("0"))
    ask = chat_ask(
        ChatBody(messages=body.messages, add_generation_prompt=body.add_generation_prompt), seed=0, request_id=""
    )
    return ask.prompts[0]

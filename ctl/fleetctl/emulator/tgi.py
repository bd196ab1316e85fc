"""TGI 3.3.7 from outside: its own routes, its OpenAI routes, errors, overload and shutdown."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from fleetctl.emulator.asks import Ask
from fleetctl.emulator.bodies import ChatBody, CompletionBody, chat_ask, completion_ask, read_body
from fleetctl.emulator.dialect import ShutdownManners
from fleetctl.emulator.formats import DONE, OpenAiFormat, Tally, event
from fleetctl.emulator.refusals import Refusal, Why
from fleetctl.emulator.tokens import TOKEN_BYTES, render_text

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

    from fleetctl.emulator.engine import Engine
    from fleetctl.emulator.formats import EventFormat
    from fleetctl.emulator.front import Front
    from fleetctl.emulator.options import Options

VERSION = "3.3.7"
_FINGERPRINT = f"{VERSION}-native"
_CONCURRENT_DEFAULT = 128  # --max-concurrent-requests
_DRAIN_DEFAULT_S = 90.0  # --graceful-termination-timeout
_STOP_SEQUENCES_MAX = 4
_CLIENT_BATCH_MAX = 4
# What a request without max_new_tokens may generate before TGI takes stock again (DEFAULT_GENERATION_LENGTH).
_NEW_TOKENS_DEFAULT = 1024
_COMPLETION_TOKENS_DEFAULT = 100
_GUARDED = (
    "/", "/generate", "/generate_stream", "/tokenize", "/v1/chat/completions", "/v1/completions",
)  # fmt: skip
_SAID = {
    Why.MALFORMED: (422, "", ""),
    Why.INVALID: (422, "Input validation error: {}", "validation"),
    Why.TOO_LONG: (422, "Input validation error: {}", "validation"),
    Why.UNKNOWN_MODEL: (404, "{}", "model"),
    Why.OVERLOADED: (429, "Model is overloaded", "overloaded"),
    Why.SHUTTING_DOWN: (500, "Incomplete generation", "incomplete_generation"),
    Why.ENGINE_FAILED: (424, "Request failed during generation: the shard failed", "generation"),
    Why.REFUSING: (503, "unhealthy", "healthcheck"),
}


class TgiDialect:
    """Refuses, limits and ends as TGI does. A stream has begun with 200 before TGI knows whether it is overloaded."""

    name = "tgi"
    warms_up_listening = False

    def __init__(self, options: Options) -> None:
        drain_s = _DRAIN_DEFAULT_S if options.shutdown_timeout_s is None else options.shutdown_timeout_s
        self.manners = ShutdownManners(drain_s=drain_s, refuses_new=False, keeps_listening=False, is_healthy=True)
        queued = options.max_queued_requests
        self._open_max = (
            max(_CONCURRENT_DEFAULT, 2 * options.max_num_seqs) if queued is None else queued + options.max_num_seqs
        )

    @property
    def concurrent_max(self) -> int:
        """Return --max-concurrent-requests."""
        return self._open_max

    def refuse(self, refusal: Refusal) -> web.Response:
        """Return TGI's error; a body that does not parse is answered in plain text, by its web framework."""
        status, message, kind = _SAID[refusal.why]
        if refusal.why is Why.MALFORMED:
            text = f"Failed to deserialize the JSON body into the target type: {refusal.message}"
            return web.Response(status=status, text=text)
        return web.json_response({"error": message.format(refusal.message), "error_type": kind}, status=status)

    def refuse_in_stream(self, refusal: Refusal, *, is_chat: bool) -> bytes:
        """Return the error event; on the OpenAI routes it has another shape, always 422, and [DONE] behind it."""
        _, message, kind = _SAID[refusal.why]
        text = message.format(refusal.message)
        if is_chat:
            return event({"error": {"message": text, "http_status_code": 422}}) + DONE
        return event({"error": text, "error_type": kind})

    def is_full(self, engine: Engine, *, sequences: int, before_begin: bool) -> bool:
        """Return whether --max-concurrent-requests is reached."""
        return not before_begin and engine.open + sequences > self._open_max

    def needs_key(self, path: str) -> bool:
        """Return whether TGI guards a path."""
        return path in _GUARDED

    def is_inference(self, path: str) -> bool:
        """Return whether a path makes the engine work."""
        return path in _GUARDED and path != "/tokenize"


class TgiFormat(OpenAiFormat):
    """Spells chats and completions as TGI does: no ids, the role in every chunk, no event before the first token."""

    def __init__(self, *, is_chat: bool, created_s: int, model: str, wants_usage: bool) -> None:
        super().__init__(
            is_chat=is_chat,
            request_id="",
            created_s=created_s,
            model=model,
            wants_usage=wants_usage,
            wants_continuous_usage=False,
        )
        self._chunk["system_fingerprint"] = _FINGERPRINT
        self._whole["system_fingerprint"] = _FINGERPRINT

    def opening(self, index: int) -> bytes:
        """Return nothing."""
        del index
        return b""

    def _ending(self, tally: Tally) -> dict[str, Any]:
        return {"finish_reason": tally.finish_reason}

    def _choice(self, index: int, text: str) -> dict[str, Any]:
        choice = super()._choice(index, text)
        if "delta" in choice:
            choice["delta"] = {"role": "assistant", "content": text}
        return choice


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


class _TokenizeBody(msgspec.Struct, frozen=True):
    inputs: str


class GenerateFormat:
    """Spells /generate and /generate_stream: one event a token, the whole text in the last, no [DONE]."""

    def __init__(self, *, has_details: bool, before: str) -> None:
        self._has_details, self._before = has_details, before

    def opening(self, index: int) -> bytes:
        """Return nothing."""
        del index
        return b""

    def frame(self, index: int) -> tuple[bytes, bytes] | None:
        """Return nothing: events are numbered."""
        del index
        return None  # the type says so

    def event(self, tally: Tally, text: bytes) -> bytes:
        """Return one event for each token."""
        first = tally.generated - len(text) // TOKEN_BYTES + 1
        return b"".join(event(self._token(first + at, word)) for at, word in enumerate(_words(text)))

    def last(self, tally: Tally, text: bytes) -> bytes:
        """Return the last token's event, with the whole text."""
        words = _words(text) or [b""]
        before = self.event(tally, b"".join(words[:-1])) if len(words) > 1 else b""
        tree = self._token(tally.generated, words[-1])
        tree["generated_text"] = self._before + tally.text.decode()
        if self._has_details:
            tree["details"] = _details(tally) | {"input_length": tally.prompt_tokens}
        return before + event(tree)

    def closing(self, tallies: Items[Tally]) -> bytes:
        """Return nothing."""
        del tallies
        return b""

    def whole(self, tallies: Items[Tally]) -> bytes:
        """Return the JSON body."""
        tally = tallies[0]
        tree: dict[str, Any] = {"generated_text": self._before + tally.text.decode()}
        if self._has_details:
            tokens = [_token(word) for word in _words(tally.text)]
            tree["details"] = _details(tally) | {"prefill": [], "tokens": tokens}
        return msgspec.json.encode(tree)

    def _token(self, number: int, word: bytes) -> dict[str, Any]:
        return {"index": number, "token": _token(word), "generated_text": None, "details": None}


class TgiRoutes:
    """Serves TGI's routes."""

    def __init__(self, front: Front, options: Options, *, concurrent_max: int) -> None:
        self._front, self._options, self._concurrent_max = front, options, concurrent_max

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
        body = read_body(_GenerateBody, await request.read())
        if body.stream:
            return await self._generate(request, body, is_stream=True)
        response = await self._generate(request, body, is_stream=False)
        if isinstance(response, web.Response) and isinstance(response.body, bytes):
            return web.Response(body=b"[" + response.body + b"]", content_type="application/json")
        return response

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Generate, and answer when all is there."""
        return await self._generate(request, read_body(_GenerateBody, await request.read()), is_stream=False)

    async def generate_stream(self, request: web.Request) -> web.StreamResponse:
        """Generate, one event a token."""
        return await self._generate(request, read_body(_GenerateBody, await request.read()), is_stream=True)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Answer a chat; `model` is not looked at, as in TGI."""
        body = read_body(ChatBody, await request.read())
        ask = self._checked(chat_ask(body, seed=self._options.seed, request_id=""))
        return await self._front.respond(request, ask, self._format(ask, is_chat=True), is_chat=True)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Answer a completion."""
        body = read_body(CompletionBody, await request.read())
        if body.max_tokens is None:
            body = msgspec.structs.replace(body, max_tokens=_COMPLETION_TOKENS_DEFAULT)
        ask = self._checked(completion_ask(body, self._front.texts, seed=self._options.seed, request_id=""))
        if len(ask.prompts) > _CLIENT_BATCH_MAX:
            raise Refusal(Why.INVALID, f"number of prompts exceeds the maximum batch size of {_CLIENT_BATCH_MAX}")
        return await self._front.respond(request, ask, self._format(ask, is_chat=False), is_chat=True)

    async def models(self, _: web.Request) -> web.Response:
        """Say what is served."""
        name = self._options.served_model_name
        card = {"id": name, "object": "model", "created": 0, "owned_by": name}
        return web.json_response({"object": "list", "data": [card]})

    async def tokenize(self, request: web.Request) -> web.Response:
        """Return a text's tokens."""
        body = read_body(_TokenizeBody, await request.read())
        raw = body.inputs.encode()
        tokens = []
        for start in range(0, len(raw), TOKEN_BYTES):
            word = raw[start : start + TOKEN_BYTES]
            tokens.append(
                {
                    "id": int.from_bytes(word, "big"),
                    "text": word.decode(errors="replace"),
                    "start": start,
                    "stop": start + len(word),
                }
            )
        return web.json_response(tokens)

    async def info(self, _: web.Request) -> web.Response:
        """Say how the router was launched."""
        total = self._front.max_model_len
        return web.json_response(
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
                "version": VERSION,
                "sha": None,
                "docker_label": None,
            }
        )

    async def health(self, _: web.Request) -> web.Response:
        """Say whether the engine lives."""
        if "unhealthy" in self._front.board or self._front.engine.is_stuck:
            return web.json_response({"error": "unhealthy", "error_type": "healthcheck"}, status=503)
        return web.Response()

    async def _generate(self, request: web.Request, body: _GenerateBody, *, is_stream: bool) -> web.StreamResponse:
        asked = body.parameters
        if not body.inputs:
            raise Refusal(Why.INVALID, "`inputs` cannot be empty")
        if (asked.best_of or 1) != 1 or asked.grammar is not None:
            raise Refusal(Why.INVALID, "best_of and grammar are not emulated")
        seed = str(self._options.seed if asked.seed is None else asked.seed)
        ask = Ask(
            prompts=(render_text(body.inputs.encode(), self._front.texts.of(seed)),),
            seed=seed,
            max_tokens=asked.max_new_tokens,
            stop=tuple(asked.stop),
            is_stream=is_stream,
        )
        before = body.inputs if asked.return_full_text else ""
        spelling: EventFormat = GenerateFormat(has_details=asked.details, before=before)
        return await self._front.respond(request, self._checked(ask), spelling, is_chat=False)

    def _checked(self, ask: Ask) -> Ask:
        """Refuse what TGI's validation refuses, and fill in its default length."""
        total = self._front.max_model_len
        if len(ask.stop) > _STOP_SEQUENCES_MAX:
            message = f"`stop` supports up to {_STOP_SEQUENCES_MAX} stop sequences. Given: {len(ask.stop)}"
            raise Refusal(Why.INVALID, message)
        if ask.max_tokens is not None and ask.max_tokens < 1:
            raise Refusal(Why.INVALID, "`max_new_tokens` must be strictly positive")
        longest = max(prompt.tokens for prompt in ask.prompts)
        if longest > total - 1:
            raise Refusal(Why.INVALID, f"`inputs` must have less than {total - 1} tokens. Given: {longest}")
        if ask.max_tokens is None:
            return dataclasses.replace(ask, max_tokens=min(total - longest, _NEW_TOKENS_DEFAULT))
        if longest + ask.max_tokens > total:
            message = (
                f"`inputs` tokens + `max_new_tokens` must be <= {total}. "
                f"Given: {longest} `inputs` tokens and {ask.max_tokens} `max_new_tokens`"
            )
            raise Refusal(Why.INVALID, message)
        return ask

    def _format(self, ask: Ask, *, is_chat: bool) -> TgiFormat:
        return TgiFormat(
            is_chat=is_chat,
            created_s=int(self._front.now_s()),
            model=self._options.served_model_name,
            wants_usage=ask.wants_usage,
        )


def _words(text: bytes) -> list[bytes]:
    return [text[at : at + TOKEN_BYTES] for at in range(0, len(text), TOKEN_BYTES)]


def _token(word: bytes) -> dict[str, Any]:
    # The emulator is certain of every word, which is a log probability of 0.
    return {"id": int.from_bytes(word, "big"), "text": word.decode(), "logprob": 0.0, "special": not word}


def _details(tally: Tally) -> dict[str, Any]:
    reasons = {"length": "length", "stop": "eos_token" if tally.stop_reason is None else "stop_sequence"}
    return {"finish_reason": reasons[tally.finish_reason], "generated_tokens": tally.generated, "seed": None}

"""vLLM 0.32's own routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from fleetctl.emulator.bodies import ChatBody, Message, chat_ask, read_body
from fleetctl.emulator.openai_routes import OpenAiRoutes
from fleetctl.emulator.tokens import TOKEN_BYTES, Prompt, render_text

if TYPE_CHECKING:
    from fleetctl.emulator.front import Front
    from fleetctl.emulator.options import Options

VERSION = "0.32.0"


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

"""vLLM 0.32's own routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from fleetctl_emulator.bodies import ChatBody, Message, chat_generation, read_body
from fleetctl_emulator.openai_routes import OpenAiRoutes
from fleetctl_emulator.tokens import TOKEN_BYTES, Prompt, render_text

if TYPE_CHECKING:
    from fleetctl_emulator.options import EmulatorOptions
    from fleetctl_emulator.service import EmulatorService


class _VllmTokenizeBody(msgspec.Struct, frozen=True):
    prompt: str | None = None
    messages: list[Message] | None = None
    add_generation_prompt: bool = True


class VllmRoutes:
    """Serves vLLM's own routes."""

    def __init__(self, service: EmulatorService, options: EmulatorOptions) -> None:
        self._service, self._version = service, options.engine_version
        self._openai = OpenAiRoutes(service, options, checks_model=True, owner="vllm")

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
        return web.Response(status=503 if "unhealthy" in self._service.injector else 200)

    async def version(self, _: web.Request) -> web.Response:
        """Say which vLLM this looks like."""
        return web.json_response({"version": self._version})

    async def load(self, _: web.Request) -> web.Response:
        """Say how many requests are being served."""
        return web.json_response({"server_load": self._service.in_flight})

    async def tokenize(self, request: web.Request) -> web.Response:
        """Return a prompt's tokens: its bytes in fours, as numbers."""
        body = read_body(_VllmTokenizeBody, await request.read())
        prompt = _tokenized(body, self._service)
        step = TOKEN_BYTES
        ids = [int.from_bytes(prompt.content[at : at + step], "big") for at in range(0, len(prompt.content), step)]
        return web.json_response(
            {"count": len(ids), "max_model_len": self._service.max_model_len, "tokens": ids, "token_strs": None}
        )


def _tokenized(body: _VllmTokenizeBody, service: EmulatorService) -> Prompt:
    if body.messages is None:
        return render_text((body.prompt or "").encode(), service.texts.of("0"))
    generation = chat_generation(
        ChatBody(messages=body.messages, add_generation_prompt=body.add_generation_prompt), seed=0, request_id=""
    )
    return generation.prompts[0]

"""An OpenAI-shaped server that behaves, or misbehaves, as each test asks."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Behaviour = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


@dataclass
class Server:
    """What was asked of the server, and how it answers."""

    behave: Behaviour
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "tiny"}, {"id": "other"}]})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.bodies.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        return await self.behave(request, body)


def event(payload: object) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def token(text: str = "word ") -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


async def open_stream(request: web.Request, lane: str = "short") -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-fleetctl-lane": lane})
    await response.prepare(request)
    return response


async def answer_well(
    request: web.Request, body: dict[str, Any], *, first_s: float = 0.0, gap_s: float = 0.0
) -> web.StreamResponse:
    """Answer as an engine does, after `first_s`, with `gap_s` between tokens."""
    count = body["max_tokens"]
    usage = {"prompt_tokens": len(body["messages"][0]["content"]) // 4, "completion_tokens": count}
    if not body["stream"]:
        choice = {"index": 0, "message": {"role": "assistant", "content": "word " * count}, "finish_reason": "length"}
        return web.json_response({"choices": [choice], "usage": usage}, headers={"x-fleetctl-lane": "batch"})
    response = await open_stream(request)
    await response.write(event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}))
    await asyncio.sleep(first_s)  # noqa: TID251  # the server's own slowness
    for _ in range(count):
        await response.write(token())
        await asyncio.sleep(gap_s)  # noqa: TID251
    await response.write(event({"choices": [], "usage": usage}))
    await response.write(b"data: [DONE]\n\n")
    return response


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Behaviour], Awaitable[Server]]]:
    runners: list[web.AppRunner] = []

    async def start(behave: Behaviour) -> Server:
        server = Server(behave)
        app = web.Application()
        app.router.add_get("/v1/models", server.models)
        app.router.add_post("/v1/chat/completions", server.chat)
        runner = web.AppRunner(app, shutdown_timeout=0.2)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return server

    yield start
    for runner in runners:
        await runner.cleanup()

"""The controller's API for the faces: one status, a stream of them, and a call that wakes it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl.codec import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.status import FleetStatus

# A reader that takes no line for this long is gone, whatever its socket says.
_WRITE_S = 10.0
_STREAMS_MAX = 64


class Broadcast:
    """Wakes every status stream when there is a new status; a slow one skips to the latest."""

    def __init__(self) -> None:
        self._turn = asyncio.Event()
        self.listeners = 0

    def announce(self) -> None:
        """Wake everybody who waits for the next status."""
        self._turn.set()
        self._turn = asyncio.Event()

    async def next(self) -> None:
        """Wait for the next status."""
        await self._turn.wait()


def app(status: Callable[[], FleetStatus | None], broadcast: Broadcast, wake: Callable[[], None]) -> web.Application:
    """Return the application. `status` is None until the first tick is over."""

    async def get_status(_: web.Request) -> web.Response:
        now = status()
        if now is None:
            return web.json_response({"error": "the controller is taking its first look"}, status=503)
        return web.Response(body=encode(now), content_type="application/json")

    async def post_wake(_: web.Request) -> web.Response:
        wake()
        return web.json_response({"woken": True})

    async def get_stream(request: web.Request) -> web.StreamResponse:
        if broadcast.listeners >= _STREAMS_MAX:
            return web.json_response({"error": f"{_STREAMS_MAX} streams are open already"}, status=503)
        response = web.StreamResponse(headers={"content-type": "application/x-ndjson", "cache-control": "no-store"})
        await response.prepare(request)
        broadcast.listeners += 1
        try:
            await _feed(response, status, broadcast)
        except (ConnectionError, TimeoutError):
            return response  # the reader has gone; nothing is owed to it
        finally:
            broadcast.listeners -= 1
        return response

    application = web.Application(client_max_size=64 * 1024)
    application.router.add_get("/v1/status", get_status)
    application.router.add_get("/v1/stream", get_stream)
    application.router.add_post("/v1/wake", post_wake)
    return application


async def _feed(response: web.StreamResponse, status: Callable[[], FleetStatus | None], broadcast: Broadcast) -> None:
    while True:
        now = status()
        if now is not None:
            async with asyncio.timeout(_WRITE_S):
                await response.write(encode(now) + b"\n")
        await broadcast.next()

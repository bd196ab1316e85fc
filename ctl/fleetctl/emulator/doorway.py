"""What every request passes on its way in: faults, the API key, and the counting of exchanges."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl.emulator.refusals import Refusal, Why

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from fleetctl.emulator.front import Front

ADMIN = "/emulator/"
_CLIENTS_FAULT = (Why.MALFORMED, Why.INVALID, Why.TOO_LONG)


class Doorway:
    """Is aiohttp middleware, by its `through`."""

    def __init__(self, front: Front, *, api_key: str) -> None:
        self._front = front
        self._expected = _digest(f"Bearer {api_key}") if api_key else b""

    @web.middleware
    async def through(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request in, and turn refusals into the flavour's own responses."""
        if request.path.startswith(ADMIN):
            return await handler(request)
        engine = self._front.engine
        began_s = engine.now()
        try:
            response = await self._let_in(request, handler)
        except Refusal as refusal:
            if refusal.why in _CLIENTS_FAULT:
                engine.metrics.failed("validation")
            response = self._front.dialect.refuse(refusal)
        except web.HTTPException as error:
            response = web.json_response({"detail": error.reason}, status=error.status)
        resource = request.match_info.route.resource
        engine.metrics.answered(
            route=resource.canonical if resource else "none",
            method=request.method,
            status=response.status,
            took_s=engine.now() - began_s,
            sizes=(request.content_length or 0, response.content_length or 0),
        )
        return response

    async def _let_in(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        board, dialect = self._front.board, self._front.dialect
        if "hang" in board:
            await board.until_answered()
        if self._expected and dialect.needs_key(request.path) and not self._is_known(request):
            return web.json_response({"error": "Unauthorized"}, status=401)
        if request.method == "POST" and dialect.is_inference(request.path):
            board.count_request()
            if "refuse" in board:
                raise Refusal(Why.REFUSING)
        return await handler(request)

    def _is_known(self, request: web.Request) -> bool:
        return secrets.compare_digest(_digest(request.headers.get("Authorization", "")), self._expected)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()

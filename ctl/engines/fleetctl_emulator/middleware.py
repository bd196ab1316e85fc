"""What every request passes on its way in: faults, the API key, and the counting of exchanges."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl_emulator.refusals import EngineRefusal, RefusalReason

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from fleetctl_emulator.service import EmulatorService

ADMIN = "/emulator/"
_CLIENTS_FAULT = (RefusalReason.MALFORMED, RefusalReason.INVALID, RefusalReason.TOO_LONG)


class EmulatorMiddleware:
    """Offers `middleware` to aiohttp."""

    def __init__(self, service: EmulatorService, *, api_key: str) -> None:
        self._service = service
        self._expected = _digest(f"Bearer {api_key}") if api_key else b""

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request in, and turn refusals into the played engine's own responses."""
        if request.path.startswith(ADMIN):
            return await handler(request)
        engine = self._service.engine
        began_s = engine.now()
        try:
            response = await self._serve(request, handler)
        except EngineRefusal as refusal:
            if refusal.reason in _CLIENTS_FAULT:
                engine.metrics.failed("validation")
            response = self._service.dialect.refuse(refusal)
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

    async def _serve(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        injector, dialect = self._service.injector, self._service.dialect
        if "hang" in injector:
            await injector.until_answered()
        if self._expected and dialect.needs_key(request.path) and not self._is_known(request):
            return web.json_response({"error": "Unauthorized"}, status=401)
        if request.method == "POST" and dialect.is_inference(request.path):
            injector.count_request()
            if "refuse" in injector:
                raise EngineRefusal(RefusalReason.REFUSING)
            if "poison" in injector and _POISON.search(await request.read()):
                raise EngineRefusal(RefusalReason.ENGINE_FAILED)
        return await handler(request)

    def _is_known(self, request: web.Request) -> bool:
        return secrets.compare_digest(_digest(request.headers.get("Authorization", "")), self._expected)


# By OpenAI's name for who stands behind a request: the one thing in a body that changes no answer.
_POISON = re.compile(rb'"user"\s*:\s*"poison"')


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()

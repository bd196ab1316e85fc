"""What every request passes on its way in: faults, the API key, and the counting of exchanges."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl_emulator.json_responses import as_json
from fleetctl_emulator.refusals import EngineRefusal, RefusalReason

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from fleetctl_emulator.service import EmulatorService

ADMIN = "/emulator/"
UNAUTHORIZED = 401
_CLIENTS_FAULT = (
    RefusalReason.WRONG_TYPE, RefusalReason.UNREADABLE, RefusalReason.MALFORMED, RefusalReason.INVALID, RefusalReason.TOO_LONG,
)  # fmt: skip


class EmulatorMiddleware:
    """Offers `middleware` to aiohttp."""

    def __init__(self, service: EmulatorService, *, api_key: str) -> None:
        self._service = service
        self._expected = _digest(api_key) if api_key else b""

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
            response = self._not_routed(request, error)
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
            return as_json({"error": "Unauthorized"}, status=UNAUTHORIZED)
        if request.method == "POST" and dialect.is_inference(request.path):
            injector.count_request()
            if "refuse" in injector:
                raise EngineRefusal(RefusalReason.REFUSING)
            if "poison" in injector and _POISON.search(await request.read()):
                raise EngineRefusal(RefusalReason.ENGINE_FAILED)
        return await handler(request)

    def _is_known(self, request: web.Request) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(_digest(given), self._expected)

    def _not_routed(self, request: web.Request, error: web.HTTPException) -> web.Response:
        """Answer for a path or a method that there is none of, as FastAPI does."""
        known = {resource.canonical for resource in request.app.router.resources()}
        shorter = request.path.rstrip("/")
        if self._service.dialect.redirects_slashes and error.status == 404 and shorter in known:
            return web.Response(
                status=307, headers={"Location": str(request.url.with_path(shorter))}, content_type=None
            )
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return as_json({"detail": error.reason}, status=error.status, headers=allow)


# By OpenAI's name for who stands behind a request: the one thing in a body that changes no answer.
_POISON = re.compile(rb'"user"\s*:\s*"poison"')


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()

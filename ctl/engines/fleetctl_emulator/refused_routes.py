"""Routes that the played engine has and this one has not: each says so itself, where a 404 would say that there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl_emulator.refusals import EngineRefusal, RefusalReason

if TYPE_CHECKING:
    from collections.abc import Iterable


def not_emulated(routes: Iterable[tuple[str, str]]) -> list[web.RouteDef]:
    """Return routes of (method, path) that answer 501."""

    async def refuse(request: web.Request) -> web.StreamResponse:
        raise EngineRefusal(RefusalReason.NOT_EMULATED, f"{request.method} {request.path} is not emulated")

    return [web.route(method, path, refuse) for method, path in routes]


def not_enabled(paths: Iterable[str], message: str) -> list[web.RouteDef]:
    """Return POST routes that are refused for want of a flag, as `message` says."""

    async def refuse(_: web.Request) -> web.StreamResponse:
        raise EngineRefusal(RefusalReason.NOT_ENABLED, message)

    return [web.post(path, refuse) for path in paths]

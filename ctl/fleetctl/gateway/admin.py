"""The controller's way in: the routing table and the snapshot, over a Unix socket only the user can open."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import msgspec
from aiohttp import web

from fleetctl import codec
from fleetctl.core.routing.registry import unknown_names
from fleetctl.gateway.running import running_answers
from fleetctl.gateway.sharing_routes import sharing_routes
from fleetctl.model.gateway import RoutingTable, SignalFeed
from fleetctl.model.request_trace import TraceQuery
from fleetctl.model.slo_feed import SloFeed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiohttp.typedefs import Handler, Middleware

    from fleetctl.gateway.frontend import Frontend

_Feed = TypeVar("_Feed")

_TABLE_BYTES_MAX = 8 * 1024 * 1024  # some 300 B a replica: more of them than any gateway serves


def app(frontend: Frontend, *, middlewares: Sequence[Middleware] = ()) -> web.Application:
    """Return the admin application; each call passes `middlewares` first."""

    async def put_table(request: web.Request) -> web.Response:
        try:
            table = codec.decode(RoutingTable, await request.read())
        except msgspec.DecodeError as exc:
            return web.json_response({"error": f"not a routing table: {exc}"}, status=400)
        if unknown := unknown_names(table.routing):
            return web.json_response({"error": f"no such scorer or filter here: {', '.join(unknown)}"}, status=400)
        if not frontend.apply(table):
            at_work = frontend.dispatcher.routes.table
            version = at_work.version if at_work is not None else 0
            return web.json_response({"error": "older than the table at work", "version": version}, status=409)
        return web.json_response({"version": table.version})

    async def snapshot(_: web.Request) -> web.Response:
        return web.Response(body=codec.encode(frontend.snapshot(os.getpid())), content_type="application/json")

    async def requests(request: web.Request) -> web.Response:
        given = dict(request.query) | ({"id": request.match_info["id"]} if "id" in request.match_info else {})
        try:
            query = msgspec.convert(given, type=TraceQuery, strict=False)
        except msgspec.ValidationError as exc:
            return web.json_response({"error": f"no such question: {exc}"}, status=400)
        found = frontend.ended.find(query)
        running = running_answers(frontend.dispatcher.endings.active, query, now=found.at, now_s=frontend.clock())
        found = replace(found, early=frontend.early.find(query.id), running=running)
        return web.Response(body=codec.encode(found), content_type="application/json")

    application = web.Application(client_max_size=_TABLE_BYTES_MAX, middlewares=middlewares)
    application.router.add_put("/v1/table", put_table)
    application.router.add_put("/v1/signals", _taking(SignalFeed, frontend.dispatcher.take_signals, "engine figures"))
    application.router.add_put("/v1/slo", _taking(SloFeed, frontend.gauges.slo.take, "readings of budgets"))
    application.router.add_get("/v1/snapshot", snapshot)
    application.router.add_get("/v1/requests", requests)
    application.router.add_get("/v1/requests/{id:.+}", requests)
    application.router.add_routes(sharing_routes(frontend))
    return application


def _taking(kind: type[_Feed], take: Callable[[_Feed], None], what: str) -> Handler:
    """Return a handler that reads a feed and hands it on."""

    async def put(request: web.Request) -> web.Response:
        try:
            feed = codec.decode(kind, await request.read())
        except msgspec.DecodeError as exc:
            return web.json_response({"error": f"no {what}: {exc}"}, status=400)
        take(feed)
        return web.json_response({})

    return put

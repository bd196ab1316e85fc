"""The controller's way in: the routing table and the snapshot, over a Unix socket only the user can open."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from fleetctl import codec
from fleetctl.core.routing.registry import unknown_names
from fleetctl.model.gateway import RoutingTable, SignalFeed

if TYPE_CHECKING:
    from fleetctl.gateway.frontend import Frontend

_TABLE_BYTES_MAX = 8 * 1024 * 1024  # some 300 B a replica: more of them than any gateway serves


def app(frontend: Frontend) -> web.Application:
    """Return the admin application."""

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

    async def put_signals(request: web.Request) -> web.Response:
        try:
            feed = codec.decode(SignalFeed, await request.read())
        except msgspec.DecodeError as exc:
            return web.json_response({"error": f"no engine figures: {exc}"}, status=400)
        frontend.dispatcher.take_signals(feed)
        return web.json_response({})

    async def snapshot(_: web.Request) -> web.Response:
        return web.Response(body=codec.encode(frontend.snapshot(os.getpid())), content_type="application/json")

    application = web.Application(client_max_size=_TABLE_BYTES_MAX)
    application.router.add_put("/v1/table", put_table)
    application.router.add_put("/v1/signals", put_signals)
    application.router.add_get("/v1/snapshot", snapshot)
    return application

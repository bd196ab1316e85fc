"""What one of several gateways is asked and told on its admin socket: its part of the limits, figures to merge, its metrics."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from fleetctl import codec
from fleetctl.core.gateway_merge import GatewayParts, lane_arrivals, lane_counts
from fleetctl.model.allotment import Allotment

if TYPE_CHECKING:
    from fleetctl.gateway.frontend import Frontend

ALLOTMENT = "/v1/allotment"


def sharing_routes(frontend: Frontend) -> list[web.RouteDef]:
    """Return the routes."""
    sharing = frontend.dispatcher.sharing

    def has(status: int) -> web.Response:
        found = sharing.holdings(os.getpid(), frontend.clock())
        return web.Response(status=status, body=codec.encode(found), content_type="application/json")

    async def put_allotment(request: web.Request) -> web.Response:
        try:
            allotment = codec.decode(Allotment, await request.read())
        except msgspec.DecodeError as exc:
            return web.json_response({"error": f"not an allotment: {exc}"}, status=400)
        return has(200 if sharing.take(allotment, frontend.clock()) else 409)

    async def holdings(request: web.Request) -> web.Response:
        if not (epoch := request.query.get("epoch", "0")).isdecimal():
            return web.json_response({"error": f"not an epoch: {epoch}"}, status=400)
        sharing.fence(int(epoch))
        return has(200)

    async def parts(_: web.Request) -> web.Response:
        lanes, now_s = tuple(frontend.dispatcher.routes.lanes.values()), frontend.clock()
        found = GatewayParts(frontend.snapshot(os.getpid()), lane_counts(lanes, now_s), lane_arrivals(lanes, now_s))
        return web.Response(body=codec.encode(found), content_type="application/json")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=frontend.pages.metrics(frontend.pages.number), content_type="text/plain")

    return [
        web.put(ALLOTMENT, put_allotment),
        web.get("/v1/holdings", holdings),
        web.get("/v1/parts", parts),
        web.get("/v1/metrics", metrics),
    ]

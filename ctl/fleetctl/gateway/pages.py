"""The pages that the gateway answers by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import msgspec

from fleetctl.core.model_names import models_by_name
from fleetctl.gateway import metrics, wire
from fleetctl.gateway.request_ids import REQUEST_ID
from fleetctl.gateway.several_pages import page_of_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.core.dispatch.routes import RoutingState
    from fleetctl.gateway.client import ClientConnection
    from fleetctl.gateway.connections import OpenConnections
    from fleetctl.gateway.requests import Request
    from fleetctl.gateway.traces import EndedRequests
    from fleetctl.gateway.upstreams import Upstreams

HEALTH, METRICS, MODEL = b"/health", b"/metrics", b"/v1/models/"
_NAME_CHARS_MAX = 200


class LocalPages:
    """Answers what needs no replica: the model list, the health and the figures."""

    def __init__(  # noqa: PLR0913  # all that the pages show
        self,
        fleet: str,
        dispatcher: Dispatcher,
        upstreams: Upstreams,
        *,
        clients: OpenConnections,
        gauges: metrics.PageGauges,
        ended: EndedRequests,
        started_at: datetime,
    ) -> None:
        self._fleet = fleet
        self._dispatcher = dispatcher
        self._upstreams = upstreams
        self._clients = clients
        self._gauges = gauges
        self._ended = ended
        ended.clients = gauges.clients
        self._started_at = started_at
        self.number = 1  # of several gateways
        self.peers: Callable[[], Mapping[int, Path]] = dict  # the admin sockets of the others, by number
        self._pages_of_all: set[asyncio.Task[None]] = set()

    def serve(self, client: ClientConnection, request: Request, *, is_stopping: bool) -> None:
        """Answer a request for one of them."""
        content_type, status, routes = wire.JSON, 200, self._dispatcher.routes
        if request.path == METRICS and self._dispatcher.sharing.is_beside:
            made = asyncio.get_running_loop().create_task(self._serve_all(client, request))
            self._pages_of_all.add(made)
            made.add_done_callback(self._pages_of_all.discard)
            return
        if request.path == METRICS:
            content_type = (b"content-type", metrics.CONTENT_TYPE)
            body = self.metrics()
        elif request.path == HEALTH:
            status, body = health(routes, is_stopping=is_stopping)
        elif request.path.startswith(MODEL):
            name = unquote_to_bytes(request.path.removeprefix(MODEL)).decode("utf-8", "replace")
            status, body = model(routes, self._started_at, name)
        else:
            body = models(routes, self._started_at)
        self.answer(client, request, status, content_type, body)

    def metrics(self, number: int = 0) -> bytes:
        """Return the metrics page, of one of several its own samples alone."""
        return metrics.exposition(
            self._fleet,
            self._dispatcher,
            self._upstreams,
            clients=self._clients,
            gauges=self._gauges,
            workflows=self._ended.workflows,
            number=number,
        )

    async def _serve_all(self, client: ClientConnection, request: Request) -> None:
        """Answer with the metrics of all gateways."""
        page = await page_of_all(self._fleet, self.number, self.metrics(self.number), self.peers())
        if client in self._clients:
            content_type = (b"content-type", metrics.CONTENT_TYPE)
            self.answer(client, request, 200, content_type, page + self.slo_metrics())

    def slo_metrics(self) -> bytes:
        """Return the controller's readings."""
        return metrics.slo_page(self._fleet, self._gauges, self._dispatcher.clock())

    def answer(
        self, client: ClientConnection, request: Request, status: int, content_type: tuple[bytes, bytes], body: bytes
    ) -> None:
        """Give a client a page."""
        head = wire.lines(content_type, (REQUEST_ID, self._ended.ids.id_of(request.headers.get(REQUEST_ID, b""))))
        client.reply(status, head, b"" if request.method == b"HEAD" else body)
        client.answered()


def health(routes: RoutingState, *, is_stopping: bool) -> tuple[int, bytes]:
    """Return the status and the body of /health: whether anybody answers."""
    lanes = {name: sum(c.in_rotation for c in lane.candidates) for name, lane in routes.lanes.items()}
    serves = any(lanes.values()) and not is_stopping
    state = "ok" if serves else "stopping" if is_stopping else "no replica in rotation"
    return (200 if serves else 503), msgspec.json.encode({"status": state, "replicas_in_rotation": lanes})


def models(routes: RoutingState, started_at: datetime) -> bytes:
    """Return the body of /v1/models."""
    return msgspec.json.encode({"object": "list", "data": _entries(routes, started_at)})


def model(routes: RoutingState, started_at: datetime, name: str) -> tuple[int, bytes]:
    """Return the status and the body of /v1/models/NAME: of any name that a request may use, hub ids included."""
    named = models_by_name(routes.table.models if routes.table is not None else ())
    entries: dict[object, dict[str, object]] = {entry["id"]: entry for entry in _entries(routes, started_at)}
    entry = entries.get(name) or entries.get(named.get(name))
    if entry is not None:
        return 200, msgspec.json.encode(entry)
    message = f"The model `{name[:_NAME_CHARS_MAX]}` does not exist"
    return 404, wire.error_body(message, kind="invalid_request_error", code="model_not_found", param="model")


def _entries(routes: RoutingState, started_at: datetime) -> list[dict[str, object]]:
    """Return what is served, each name once: models, their adapters with their model as parent, and aliases."""
    table = routes.table
    common: dict[str, object] = {"object": "model", "created": int(started_at.timestamp()), "owned_by": "fleetctl"}
    found: dict[str, dict[str, object]] = {}
    for each in table.models if table is not None else ():
        lanes = {
            name: lane.route.max_model_len
            for name, lane in routes.lanes.items()
            if lane.route.model in ("", each.name) and lane.route.max_model_len
        }
        served = {"max_model_len": max(lanes.values(), default=None), "lanes": lanes}
        for name in (each.name, *each.aliases):
            found.setdefault(name, {"id": name, **common, "root": each.root, "parent": None, **served})
        for name, where in each.adapters.items():
            found.setdefault(name, {"id": name, **common, "root": where, "parent": each.name, **served})
    if table is not None and not table.models:
        found = {name: {"id": name, **common} for name in table.served_names or (table.model,)}
    return list(found.values())

"""The pages that the gateway answers by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fleetctl.gateway import metrics, wire
from fleetctl.gateway.request_ids import REQUEST_ID

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.core.dispatch.routes import RoutingState
    from fleetctl.gateway.client import ClientConnection
    from fleetctl.gateway.connections import OpenConnections
    from fleetctl.gateway.requests import Request
    from fleetctl.gateway.traces import EndedRequests
    from fleetctl.gateway.upstreams import Upstreams

HEALTH, METRICS = b"/health", b"/metrics"


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

    def serve(self, client: ClientConnection, request: Request, *, is_stopping: bool) -> None:
        """Answer a request for one of them."""
        content_type, status, routes = wire.JSON, 200, self._dispatcher.routes
        if request.path == METRICS:
            content_type = (b"content-type", metrics.CONTENT_TYPE)
            body = metrics.exposition(
                self._fleet,
                self._dispatcher,
                self._upstreams,
                clients=self._clients,
                gauges=self._gauges,
                workflows=self._ended.workflows,
            )
        elif request.path == HEALTH:
            status, body = health(routes, is_stopping=is_stopping)
        else:
            body = models(routes, self._started_at)
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
    created = int(started_at.timestamp())
    table = routes.table
    served = () if table is None else table.served_names or (table.model,)
    listed = [{"id": name, "object": "model", "created": created, "owned_by": "fleetctl"} for name in served]
    return msgspec.json.encode({"object": "list", "data": listed})

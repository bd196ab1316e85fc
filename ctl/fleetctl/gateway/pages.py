"""The pages that the gateway answers by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.core.dispatch.routes import RoutingState


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

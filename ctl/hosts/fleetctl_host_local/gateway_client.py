"""Asks a fleet's gateway over its Unix socket."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import msgspec

from fleetctl.codec import decode
from fleetctl.errors import UnavailableError
from fleetctl.model.request_trace import RequestTraces
from fleetctl.paths import FleetPaths
from fleetctl_host_local.unix_connection import call

if TYPE_CHECKING:
    from fleetctl.model.request_trace import TraceQuery

_DEADLINE_S = 5.0


def request_traces(fleet: str, query: TraceQuery) -> RequestTraces:
    """Return what the gateway remembers of requests. Raises UnavailableError."""
    given = {name: value for name, value in msgspec.to_builtins(query).items() if value not in (None, "")}
    id_ = given.pop("id", "")
    path = f"/v1/requests/{quote(id_, safe='')}" if id_ else "/v1/requests"
    given["is_missed"] = str(query.is_missed).lower()
    raw = _get(fleet, f"{path}?{urlencode(given)}")
    try:
        return decode(RequestTraces, raw)
    except msgspec.DecodeError as exc:
        raise UnavailableError(
            f"the gateway of {fleet} answers what this version cannot read: {exc}",
            hint="it may be of an earlier version, which remembers no requests",
        ) from exc


def _get(fleet: str, path: str) -> bytes:
    return call(
        FleetPaths(fleet=fleet).gateway_socket, "GET", path, of=f"the gateway of {fleet}", deadline_s=_DEADLINE_S
    )

"""Asks a fleet's gateway over its Unix socket."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import msgspec

from fleetctl.codec import decode
from fleetctl.errors import UnavailableError
from fleetctl.model.request_trace import RequestTraces
from fleetctl.paths import FleetPaths
from fleetctl_host_local.unix_connection import UnixConnection

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
    connection = UnixConnection(FleetPaths(fleet=fleet).gateway_socket, deadline_s=_DEADLINE_S)
    try:
        connection.request("GET", path, headers={"connection": "close"})
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as exc:
        raise UnavailableError(f"the gateway of {fleet} does not answer: {exc}") from exc
    finally:
        connection.close()
    if response.status >= 300:
        raise UnavailableError(f"the gateway of {fleet} answered {response.status} to GET {path}: {body[:200]!r}")
    return body

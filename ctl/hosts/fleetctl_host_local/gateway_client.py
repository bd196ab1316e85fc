"""Asks a fleet's gateway over its Unix socket."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import msgspec

from fleetctl.codec import decode
from fleetctl.errors import UnavailableError
from fleetctl.locks import FileLock
from fleetctl.model.request_trace import RequestTraces, merged_traces
from fleetctl.paths import FleetPaths
from fleetctl_host_local.unix_connection import call

if TYPE_CHECKING:
    from fleetctl.model.request_trace import TraceQuery

_DEADLINE_S = 5.0


def request_traces(fleet: str, query: TraceQuery) -> RequestTraces:
    """Return what the gateway remembers of requests, or all of several. Raises UnavailableError."""
    paths = FleetPaths(fleet=fleet)
    numbers = [n for n in paths.gateway_numbers if n == 1 or FileLock(paths.gateway_lock_of(n)).is_held()]
    if len(numbers) == 1:
        return _call(fleet, 1, query)
    refuse_order_of_several(fleet, query)
    found, failed = [], None
    for number in numbers:
        try:
            found.append(_call(fleet, number, query))
        except UnavailableError as exc:
            failed = exc
    if failed is not None and not found:
        raise failed
    return merged_traces(found, limit=query.limit, running=query.running)


def refuse_order_of_several(fleet: str, query: TraceQuery) -> None:
    """Raise UnavailableError for what follows an order that each of several gateways has by itself."""
    if query.after is not None:
        raise UnavailableError(
            f"fleet {fleet} has several gateways, and each counts the order in which its requests ended by itself",
            hint="a fleet is recorded with one gateway: gateway.processes: 1",
        )


def traces_target(query: TraceQuery) -> tuple[str, dict[str, str]]:
    """Return the path and the parameters by which a gateway is asked."""
    given = {name: str(value) for name, value in msgspec.to_builtins(query).items() if value not in (None, "")}
    id_ = given.pop("id", "")
    given["is_missed"] = str(query.is_missed).lower()
    return (f"/v1/requests/{quote(id_, safe='')}" if id_ else "/v1/requests"), given


def _call(fleet: str, number: int, query: TraceQuery) -> RequestTraces:
    path, given = traces_target(query)
    what = f"the gateway of {fleet}" if number == 1 else f"gateway {number} of {fleet}"
    socket = FleetPaths(fleet=fleet).gateway_socket_of(number)
    raw = call(socket, "GET", f"{path}?{urlencode(given)}", of=what, deadline_s=_DEADLINE_S)
    try:
        return decode(RequestTraces, raw)
    except msgspec.DecodeError as exc:
        raise UnavailableError(
            f"{what} answers what this version cannot read: {exc}",
            hint="it may be of an earlier version, which remembers no requests",
        ) from exc

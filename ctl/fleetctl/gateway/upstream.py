"""One replica as the gateway connects to it: its address, and the pool of idle connections."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.gateway.upstream_connection import UpstreamConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.gateway.limits import GatewayLimits
    from fleetctl.model.gateway import RouteReplica

_log = logging.getLogger("fleetctl.gateway")


class Upstream:
    """One replica: its address, and idle connections to it.

    The last connection given is the first one taken, so the others may age out.
    """

    __slots__ = (
        "_clock",
        "_idle",
        "address",
        "form",
        "limits",
        "opened",
        "priority_sign",
        "protocol_errors",
        "replica_id",
        "request_head",
        "served_name",
    )

    def __init__(self, row: RouteReplica, clock: Callable[[], float], limits: GatewayLimits) -> None:
        self._clock = clock
        self.limits = limits
        self._idle: list[UpstreamConnection] = []
        self.opened = 0  # connections, ever
        self.protocol_errors = 0  # answers that broke HTTP or a bound, ever
        self.replica_id = row.id.encode()
        self.address = row.address
        self.served_name = row.served_name  # empty: as every other replica's
        self.priority_sign = row.priority_sign
        self.form = row.form  # None: requests are sent as they come
        # After the target. Engines take a body of another type for none, or refuse it, each in its own way.
        self.request_head = b" HTTP/1.1\r\nhost: %b:%d\r\ncontent-type: application/json\r\n" % (
            row.host.encode(), row.port,
        )  # fmt: skip

    def __str__(self) -> str:
        return "{} at {}:{}".format(self.replica_id.decode(), *self.address)

    def __len__(self) -> int:
        return len(self._idle)

    async def connect(self) -> UpstreamConnection:
        """Return a new connection. Raises OSError."""
        make = partial(UpstreamConnection, self, self._clock)
        _, connection = await asyncio.get_running_loop().create_connection(make, *self.address)
        return connection

    def take(self) -> UpstreamConnection | None:
        """Return a live idle connection, or None."""
        if not self._idle:
            return None
        stale_s = self._clock() - self.limits.upstream_idle_s
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed and connection.idle_since_s > stale_s:
                return connection
            connection.close()
        return None

    def protocol_error(self, what: object) -> None:
        """Count an answer that breaks HTTP or a bound."""
        self.protocol_errors += 1
        _log.warning("replica %s: %s", self, what)

    def give(self, connection: UpstreamConnection) -> None:
        """Keep a connection whose answer is whole."""
        connection.idle_since_s = self._clock()
        self._idle.append(connection)

    def discard(self, connection: UpstreamConnection) -> None:
        """Forget a connection that closed while idle."""
        if connection in self._idle:
            self._idle.remove(connection)

    def expire(self) -> None:
        """Close those idle for too long."""
        stale_s = self._clock() - self.limits.upstream_idle_s
        while self._idle and self._idle[0].idle_since_s <= stale_s:
            self._idle.pop(0).close()

    def drop_idle(self) -> None:
        """Close all idle ones: the next request gets a fresh connection."""
        while self._idle:
            self._idle.pop().close()

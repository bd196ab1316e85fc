"""The replicas of the routing table as the gateway connects to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.gateway.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.gateway.limits import GatewayLimits
    from fleetctl.model.gateway import RoutingTable


class Upstreams(dict[str, Upstream]):
    """Replica id -> its upstream. Those the table names no longer are closed; what they carry holds on to them."""

    def __init__(self, clock: Callable[[], float], limits: GatewayLimits) -> None:
        super().__init__()
        self._clock = clock
        self._limits = limits

    def apply(self, table: RoutingTable) -> None:
        """Replace the table."""
        listed = {row.id: row for row in table.replicas}
        for replica_id, upstream in list(self.items()):
            row = listed.get(replica_id)
            if row is None or row.address != upstream.address:
                upstream.drop_idle()
                del self[replica_id]
        for row in table.replicas:
            if row.id not in self:
                self[row.id] = Upstream(row, self._clock, self._limits)
            upstream = self[row.id]
            upstream.served_name, upstream.priority_sign, upstream.form = row.served_name, row.priority_sign, row.form

    def expire(self) -> None:
        """Close connections that have been idle for too long."""
        for upstream in self.values():
            upstream.expire()

    def close(self) -> None:
        """Close every idle connection."""
        for upstream in self.values():
            upstream.drop_idle()

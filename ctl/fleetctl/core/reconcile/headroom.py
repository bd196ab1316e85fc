"""What the fleet's hard caps leave for another node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.machines import machine_count
from fleetctl.core.orphaned import NONE_ORPHANED, OrphanedCost
from fleetctl.model.profile import CapacitySpec
from fleetctl.model.replica import ReplicaState
from fleetctl.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.reconcile.replica_step import ReplicaStep

_LEAVING = (ReplicaState.DRAINING, ReplicaState.STOPPING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """Nodes and money left under the caps; both may be negative when a cap was lowered under a living fleet."""

    nodes: int
    usd_per_hour: float | None  # None: no cap
    capacity: CapacitySpec
    leaving_nodes: int = 0  # of those that are there, and will have ended soon
    leaving_usd_per_hour: float = 0.0

    def refusal(self, price_usd_per_hour: float, *, nodes: int = 1) -> str:
        """Return why a replica on so many more machines, at this price for all, may not be had, or an empty string."""
        if self.nodes < 1:
            return f"at the fleet's cap of {self.capacity.max_nodes} nodes (capacity.max_nodes)"
        if self.nodes < nodes:
            return (
                f"a replica spans {nodes} nodes, and the fleet's cap of {self.capacity.max_nodes} (capacity.max_nodes) "
                f"leaves {self.nodes}"
            )
        # A cent's fraction of rounding must not refuse the node that fills the budget exactly.
        if self.usd_per_hour is not None and price_usd_per_hour > self.usd_per_hour + 1e-9:
            cap = format_usd(self.capacity.max_cost_usd_per_hour or 0.0)
            return (
                f"a node at {format_usd(price_usd_per_hour)}/h does not fit the fleet's cap of {cap}/h "
                f"(capacity.max_cost_per_hour), {format_usd(max(0.0, self.usd_per_hour))}/h is left"
            )
        return ""

    def frees(self, price_usd_per_hour: float, *, nodes: int = 1) -> bool:
        """Whether what is leaving makes room for a replica that may not be had now."""
        money = None if self.usd_per_hour is None else self.usd_per_hour + self.leaving_usd_per_hour
        soon = replace(self, nodes=self.nodes + self.leaving_nodes, usd_per_hour=money)
        return bool(self.refusal(price_usd_per_hour, nodes=nodes)) and not soon.refusal(price_usd_per_hour, nodes=nodes)

    def without(self, price_usd_per_hour: float, *, nodes: int = 1) -> Headroom:
        """Return what is left after one more replica."""
        money = None if self.usd_per_hour is None else self.usd_per_hour - price_usd_per_hour
        return replace(self, nodes=self.nodes - nodes, usd_per_hour=money)


def headroom_left(
    capacity: CapacitySpec, steps: Iterable[ReplicaStep], *, orphaned: OrphanedCost = NONE_ORPHANED
) -> Headroom:
    """Return what the caps leave once every death that was just seen is recorded.

    Orphaned nodes are paid for until they have ended, and one that cannot be stopped may stay for long.
    """
    there = [o for o in steps if o.state.is_live]
    living = [o.replica.record for o in there]
    staying = [o.replica.record for o in there if o.state not in _LEAVING]
    staying_usd = sum(record.price_usd_per_hour for record in staying)
    cap = capacity.max_cost_usd_per_hour
    spent = sum(record.price_usd_per_hour for record in living) + orphaned.usd_per_hour
    return Headroom(
        nodes=capacity.max_nodes - machine_count(living) - orphaned.machines,
        usd_per_hour=None if cap is None else cap - spent,
        capacity=capacity,
        leaving_nodes=machine_count(living) - machine_count(staying) + orphaned.machines,
        leaving_usd_per_hour=spent - staying_usd,
    )

"""What holds a part of a fleet's caps beside its replicas: orphaned nodes until they have ended, and its head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.node import Node
    from fleetctl.model.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedCost:
    """The machines of orphaned nodes and their price an hour together, and the head's, which no cap on nodes counts."""

    machines: int = 0
    usd_per_hour: float = 0.0
    head_usd_per_hour: float = 0.0  # paid for as long as the fleet is there

    @property
    def total_usd_per_hour(self) -> float:
        """Return what the fleet pays beside its replicas."""
        return self.usd_per_hour + self.head_usd_per_hour


NONE_ORPHANED = OrphanedCost()


def orphaned_cost(nodes: Sequence[Node], plan: Plan) -> OrphanedCost:
    """Return what these nodes hold, at the plan's prices where their own are not known."""
    return OrphanedCost(
        machines=sum(1 + len(node.members) for node in nodes),
        usd_per_hour=sum(_price(node, plan) for node in nodes),
        head_usd_per_hour=plan.head_usd_per_hour,
    )


def _price(node: Node, plan: Plan) -> float:
    """Return what a node costs an hour: what is billed for it, else its offering's price, else the dearest of its market."""
    if node.price_usd_per_hour is not None:
        return node.price_usd_per_hour
    planned = [o for lane in plan.lanes for o in (lane.offering, lane.spot_offering) if o is not None]
    known = [offering for offering in planned if str(offering.key) == node.offering]
    sold = known or [offering for offering in planned if offering.market is node.market]
    dearest = max((offering.price_usd_per_hour for offering in sold), default=0.0)
    return dearest * node.machine_part * (1 + len(node.members))

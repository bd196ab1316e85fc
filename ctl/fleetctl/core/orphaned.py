"""What orphaned nodes hold of a fleet's caps: they are paid for until they have ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.node import Node
    from fleetctl.model.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedCost:
    """The machines of orphaned nodes, and their price an hour together."""

    machines: int = 0
    usd_per_hour: float = 0.0


NONE_ORPHANED = OrphanedCost()


def orphaned_cost(nodes: Sequence[Node], plan: Plan) -> OrphanedCost:
    """Return what these nodes hold, at the plan's prices where their own are not known."""
    return OrphanedCost(
        machines=sum(1 + len(node.members) for node in nodes), usd_per_hour=sum(_price(node, plan) for node in nodes)
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

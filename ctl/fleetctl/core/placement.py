"""Which offering carries the next replica: filter, score, pick. Spread over zones; caps are never crossed."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import Market, Offering

if TYPE_CHECKING:
    from collections.abc import Sequence, Set as AbstractSet

    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import CapacitySpec
    from fleetctl.model.replica import Replica

# Losing a zone takes its spot nodes together, so spreading weighs more there than a few cents.
_SPREAD_WEIGHT = {Market.SPOT: 0.7, Market.ON_DEMAND: 0.4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The pick, or None, with the reason each other offering was not it."""

    offering: Offering | None
    reason: str  # one clause
    rejected: dict[str, str] = field(default_factory=dict)  # Offering.key -> why


def next_offering(
    lane_plan: LanePlan,
    live: Sequence[Replica],
    market: Market,
    offerings: Sequence[Offering],
    *,
    capacity: CapacitySpec,
    avoid: AbstractSet[str] = frozenset(),
) -> Placement:
    """Return where to launch the lane's next replica. `live` are all the fleet's replicas that hold a node.

    `avoid` holds keys of offerings that lately had no stock. No offering left is an answer, not an error: the caller
    may try the other market, or wait.
    """
    standing = [replica for replica in live if replica.state.is_live]
    rejected: dict[str, str] = {}
    fitting: list[Offering] = []
    for offering in sorted(offerings, key=lambda o: o.key):
        why = _rejection(offering, lane_plan, market, capacity, avoid) or _over_cap(offering, standing, capacity)
        if why:
            rejected[offering.key] = why
        else:
            fitting.append(offering)
    if not fitting:
        return Placement(offering=None, reason=_nothing(rejected, market), rejected=rejected)
    zones = Counter(_zone(replica) for replica in standing if replica.lane == lane_plan.lane)
    best = max(fitting, key=lambda o: (score(o, fitting, zones), -o.price_usd_per_hour, o.key))
    return Placement(
        offering=best,
        reason=f"{best.key}: {zones[best.zone]} of the lane's replicas in its zone, "
        f"${best.price_usd_per_hour:.4g} an hour, best of {len(fitting)}",
        rejected=rejected,
    )


def score(offering: Offering, fitting: Sequence[Offering], zones: Counter[str]) -> float:
    """Return 0 to 1: cheap beside the other fitting offerings, in a zone with few of the lane's replicas."""
    cheapest = min(o.price_usd_per_hour for o in fitting)
    price = cheapest / offering.price_usd_per_hour if offering.price_usd_per_hour > 0 else 1.0
    spread = 1.0 / (1 + zones[offering.zone])
    weight = _SPREAD_WEIGHT[offering.market]
    return weight * spread + (1 - weight) * price


def _rejection(
    offering: Offering, lane_plan: LanePlan, market: Market, capacity: CapacitySpec, avoid: AbstractSet[str]
) -> str:
    """Return why an offering cannot carry this lane; empty when it can."""
    if offering.market is not market:
        return f"is {offering.market}, not {market}"
    if offering.gpu != lane_plan.gpu:
        return f"has {offering.gpu}, and the lane was planned on {lane_plan.gpu}"
    if offering.gpu_count < lane_plan.tensor_parallel:
        return f"has {offering.gpu_count} GPUs, and the model is split over {lane_plan.tensor_parallel}"
    if capacity.region and offering.region != capacity.region:
        return f"is in {offering.region}, outside the profile's region"
    if capacity.zones and offering.zone not in capacity.zones:
        return f"is in {offering.zone}, outside the profile's zones"
    return "had no stock lately" if offering.key in avoid else ""


def _over_cap(offering: Offering, standing: Sequence[Replica], capacity: CapacitySpec) -> str:
    """Return which cap one more node would cross; empty when none."""
    if len(standing) >= capacity.max_nodes:
        return f"all {capacity.max_nodes} nodes of max_nodes are in use"
    most = capacity.max_cost_usd_per_hour
    spent = math.fsum(replica.price_usd_per_hour for replica in standing)
    if most is not None and spent + offering.price_usd_per_hour > most + 1e-9:
        return f"would bring the cost to ${spent + offering.price_usd_per_hour:.2f} an hour, over ${most:.2f}"
    return ""


def _zone(replica: Replica) -> str:
    """Return the zone in an offering's key: type/zone/market."""
    parts = replica.offering.rsplit("/", 2)
    return parts[1] if len(parts) == 3 else ""


def _nothing(rejected: dict[str, str], market: Market) -> str:
    # What could never have fitted says less than a cap or a stock-out on what could.
    common = [why for why, _ in Counter(rejected.values()).most_common()]
    near = [why for why in common if not why.startswith(("is ", "has "))] or common
    return f"no {market} offering fits: {near[0] if near else 'nothing is on offer'}"

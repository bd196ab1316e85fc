"""Which market a lane's next replica is bought on, and how an on-demand fallback is given back to spot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.disruption import on_demand_surplus
from fleetctl.core.placement import Placement, next_offering
from fleetctl.core.reconcile.limits import since_s
from fleetctl.core.reconcile.replica_step import unsettled
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import LaunchReplica
from fleetctl.model.profile import SpotPolicy
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.reconcile.lane_state import LaneState
    from fleetctl.core.reconcile.replica_step import ReconcileContext, ReplicaStep
    from fleetctl.model.replica import Replica

# A substitute that was ordered and did not come is not ordered again before this, whatever refused it.
_SUBSTITUTE_AGAIN_S = 60.0
_STARTING = (ReplicaState.PENDING, ReplicaState.BOOTING, ReplicaState.WARMING)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketChoice:
    """Where the next replica is bought, and why not where it were cheaper."""

    market: Market
    reason: str = ""


def next_market(lane: LaneState, on_demand: int) -> MarketChoice:
    """Return the on-demand baseline first, then spot as the profile allows and some offering may have stock.

    One that has just lost a node may: a launch tries it last, and the provider says at once where it has none.
    """
    if not may_use_spot(lane) or on_demand < lane.plan.on_demand:
        return MarketChoice(market=Market.ON_DEMAND)
    placed = _place(lane, Market.SPOT, avoids=False)
    if placed is None or placed.offering is not None:
        return MarketChoice(market=Market.SPOT)
    elsewhere = _place(lane, Market.ON_DEMAND)
    if elsewhere is None or elsewhere.offering is None:
        return MarketChoice(market=Market.SPOT)
    return MarketChoice(market=Market.ON_DEMAND, reason=placed.reason)


def may_use_spot(lane: LaneState) -> bool:
    """Whether the lane may be on spot at all."""
    return lane.plan.spot_offering is not None and lane.spec.spot is not SpotPolicy.NONE


def fallbacks(lane: LaneState, capacity: Sequence[ReplicaStep]) -> list[ReplicaStep]:
    """Return the on-demand replicas that stand in for spot, the dearest first."""
    if not may_use_spot(lane):
        return []
    surplus = on_demand_surplus([o.replica for o in capacity], lane.plan.on_demand)
    if not surplus:
        return []
    ids = {r.record.id for r in surplus}
    return sorted((o for o in capacity if o.id in ids), key=lambda o: (-o.replica.record.price_usd_per_hour, o.id))


def substituting(lane: LaneState, capacity: Sequence[ReplicaStep]) -> int:
    """Return how many replicas on their way are to take a fallback's place once they serve, and so are none too many.

    Inside the lane's maximum any on spot will; what was ordered in place of one that is there stands beside it whatever
    the maximum.
    """
    starting = [o.replica.record for o in capacity if _is_coming_on_spot(o)]
    if not starting:
        return 0
    standing = fallbacks(lane, capacity)
    headroom = max(0, lane.spec.replicas.max - lane.target.wanted)
    return max(_replaced(starting, standing), min(len(starting), len(standing), headroom))


def _replaced(starting: Sequence[Replica], standing: Sequence[ReplicaStep]) -> int:
    ids = {record.replaces for record in starting}
    return sum(o.id in ids for o in standing)


def replaces_none(step: ReplicaStep, lane: LaneState, capacity: Sequence[ReplicaStep]) -> bool:
    """Whether a replica starts on spot though no fallback that it was ordered in place of is there."""
    return _is_coming_on_spot(step) and not _replaced([step.replica.record], fallbacks(lane, capacity))


def _is_coming_on_spot(step: ReplicaStep) -> bool:
    return step.replica.record.market is Market.SPOT and step.state in _STARTING[1:]


def substitutes(
    lane: LaneState, capacity: Sequence[ReplicaStep], context: ReconcileContext
) -> tuple[LaneState, list[LaunchReplica]]:
    """Return the spot replicas to order in place of on-demand fallbacks, half of these at a time, and the lane after it.

    Only where every replica wanted is there, and some spot offering has neither been lost nor refused an order lately.
    """
    found = fallbacks(lane, capacity)
    is_starting = any(o.state in _STARTING for o in unsettled(capacity))
    waits = 0.0 < since_s(lane.memory.substitute_at, context.now) < _SUBSTITUTE_AGAIN_S
    if not found or lane.shadow or is_starting or waits or len(capacity) > lane.target.wanted:
        return lane, []
    placed = _place(lane, Market.SPOT)
    if placed is None or placed.offering is None:
        return lane, []
    leaving = [o for o in found if o.state is ReplicaState.READY][: (len(found) + 1) // 2]
    launches = [
        LaunchReplica(
            lane=lane.spec.name,
            market=Market.SPOT,
            replaces=o.id,
            may_fall_back=False,
            code=ReasonCode.SPOT_AGAIN,
            reason=f"takes the place of {o.id}, on demand because spot was short: {placed.reason}",
        )
        for o in leaving
    ]
    if not launches:
        return lane, []
    return replace(lane, memory=replace(lane.memory, substitute_at=context.now)), launches


def _place(lane: LaneState, market: Market, *, avoids: bool = True) -> Placement | None:
    """Return where the next replica would go on a market; None: what is sold is not known."""
    view = lane.market
    if not view.offerings:
        return None
    return next_offering(
        lane.plan,
        view.standing,
        market,
        view.offerings,
        capacity=view.capacity,
        avoid=view.refused,
        hazards=replace(view.hazards, avoids=avoids),
        cordoned=view.cordoned,
    )

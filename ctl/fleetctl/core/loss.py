"""Computes what a fleet would lose with some of its replicas, by the same placement and the same plan it runs by."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.boot_times import expected_replacement_s
from fleetctl.core.demand import mean_lengths, replicas_needed
from fleetctl.core.hazard import Hazards
from fleetctl.core.placement import ranked_offerings
from fleetctl.model.catalogue import Market, Offering
from fleetctl.model.loss import FleetLoss, LaneLoss
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.replica import Replica
    from fleetctl.model.status import FleetStatus, LaneStatus

_LOAD_WINDOW_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementSupply:
    """What replacements may be bought."""

    offerings: Sequence[Offering]
    hazards: Hazards
    cordoned: AbstractSet[str] = frozenset()


def fleet_loss(
    desired: Desired,
    status: FleetStatus,
    going: Sequence[Replica],
    *,
    target: str,
    supply: ReplacementSupply,
    surges: bool,
) -> FleetLoss:
    """Return what goes with these replicas. `surges`: they stay until their replacements serve, and count for the caps.

    Otherwise their nodes are taken, and placement learns of it before anything is bought.
    """
    if not surges:
        taken = [record.offering for record in going if record.market is Market.SPOT]
        supply = replace(supply, hazards=supply.hazards.after_losses(taken))
    gone = {record.id for record in going}
    live = [each.record for each in status.replicas if each.record.state.is_live]
    standing = [record for record in live if surges or record.id not in gone]
    lanes: list[LaneLoss] = []
    bought_usd = 0.0
    for seen in status.lanes:
        lost = [record for record in going if record.lane == seen.name]
        if not lost:
            continue
        bought, reason = _replacements(desired, seen.name, lost, standing, supply)
        standing += bought
        bought_usd += math.fsum(record.price_usd_per_hour for record in bought)
        lanes.append(_lane(desired, status, seen, lost, bought, reason, surges=surges))
    cost = math.fsum(record.price_usd_per_hour for record in live)
    lost_usd = math.fsum(record.price_usd_per_hour for record in live if record.id in gone)
    return FleetLoss(
        fleet=desired.fleet,
        at=status.at,
        target=target,
        surges=surges,
        lanes=tuple(lanes),
        cost_usd_per_hour=cost,
        surge_usd_per_hour=bought_usd if surges else 0.0,
        after_usd_per_hour=cost - lost_usd + bought_usd,
    )


def _replacements(
    desired: Desired, lane: str, lost: Sequence[Replica], standing: Sequence[Replica], supply: ReplacementSupply
) -> tuple[list[Replica], str]:
    """Return stand-ins for the replicas that would be bought, and why the last is where it is, or why there are no more."""
    plan, reason = desired.plan.lane(lane), ""
    bought: list[Replica] = []
    for record in lost:
        if not record.state.counts_as_capacity:
            continue
        ranking = ranked_offerings(
            plan,
            [*standing, *bought],
            record.market,
            supply.offerings,
            capacity=desired.profile.capacity,
            avoid=frozenset(),
            hazards=supply.hazards,
            may_fall_back=True,
            most=1,
            cordoned=supply.cordoned,
        )
        reason = ranking.reason
        if not ranking.offerings:
            break
        offering = ranking.offerings[0]
        bought.append(
            replace(
                record,
                id=f"{record.id}+",
                state=ReplicaState.PENDING,
                offering=offering.key,
                price_usd_per_hour=offering.price_usd_per_hour * plan.node_count,
                machine_id="",
                members=(),
            )
        )
    return bought, reason


def _lane(  # noqa: PLR0913  # what a lane's line stands on
    desired: Desired,
    status: FleetStatus,
    seen: LaneStatus,
    lost: Sequence[Replica],
    bought: Sequence[Replica],
    reason: str,
    *,
    surges: bool,
) -> LaneLoss:
    plan = desired.plan.lane(seen.name)
    lost_ready = sum(record.state is ReplicaState.READY for record in lost)
    left = seen.ready - lost_ready
    needed, is_known = _needed(desired, seen)
    in_flight = {each.record.id: each.in_flight for each in status.replicas}
    return LaneLoss(
        lane=seen.name,
        replicas=tuple(record.id for record in lost),
        ready=seen.ready,
        ready_left=left,
        wanted=seen.wanted,
        needed=needed,
        # Without load nobody is needed for it, and yet the next request would find nobody.
        keeps_slo=left >= max(needed, 0 if surges else 1) if is_known else None,
        in_flight=sum(in_flight.get(record.id, 0) for record in lost),
        in_flight_lost=0 if surges else sum(in_flight.get(r.id, 0) for r in lost if not _continues(r)),
        replace_s=expected_replacement_s(plan, tuple(each.record for each in status.replicas)),
        offerings=tuple(record.offering for record in bought),
        lacking=sum(record.state.counts_as_capacity for record in lost) - len(bought),
        reason=reason,
    )


def _continues(record: Replica) -> bool:
    """Whether another replica may go on with what this one has begun to say."""
    return record.capacity is not None and record.capacity.continues_streams


def _needed(desired: Desired, seen: LaneStatus) -> tuple[int, bool]:
    """Return how many replicas the load of the last minute needs inside the SLO, and whether that is known."""
    if seen.traffic is None:
        return 0, False
    window = seen.traffic.window(_LOAD_WINDOW_S)
    rps = window.offered / _LOAD_WINDOW_S
    return replicas_needed(desired.plan.lane(seen.name), rps, mean_lengths(seen.traffic)), True

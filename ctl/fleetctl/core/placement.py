"""Which offering carries the next replica: filter, score, pick. Spread over zones; caps are never crossed."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from fleetctl.core.hazard import NOTHING_LEARNED, Hazards
from fleetctl.core.identity_cache import cached_by_identity
from fleetctl.core.machines import by_type, machine_count
from fleetctl.core.offering_score import Score, best_of, scored
from fleetctl.core.orphaned import NONE_ORPHANED, OrphanedCost
from fleetctl.core.zone_room import full_zones
from fleetctl.model.catalogue import Market, Offering
from fleetctl.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet

    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import CapacitySpec
    from fleetctl.model.replica import Replica


# Prices differ by zone; what costs half as much again as the lane on demand is another class of machine.
_DEARER_BY = 1.5

# Of so many lanes it is kept what of a catalogue could carry them, which is the same in nearly every decision.
_LANES_KNOWN = 64
# Of what was not picked, in the journal: the next best, and the cheapest of so many kinds of rejection.
_BEATEN_MAX, _REASONS_MAX = 2, 4


class RejectionCode(StrEnum):
    """Why an offering does not carry the next replica."""

    MARKET = "market"  # sold under the other market
    GPU = "gpu"  # not the card the lane was planned on
    GPU_COUNT = "gpu-count"  # fewer GPUs than the model is split over
    EMULATED = "emulated"  # of this machine for an emulated lane, or emulated for a lane of real engines
    SHARE = "share"  # a larger share of a machine than the lane takes
    REGION = "region"  # outside the profile's region
    ZONE = "zone"  # outside the profile's zones
    CORDONED = "cordoned"  # a person keeps new replicas from its zone
    NO_STOCK = "no-stock"  # lately, or in its zone
    JUST_LOST = "just-lost"  # a node was taken there lately
    DEARER = "dearer"  # spot that costs far more than its lane on demand
    NODES_MAX = "nodes-max"  # one more node would cross the profile's cap
    COST_MAX = "cost-max"  # its price would
    TYPE_MAX = "type-max"  # one more of its type would cross the profile's limit

    @property
    def is_passing(self) -> bool:
        """Whether the offering fits the lane and only the present forbids it."""
        return self in _PASSING


_PASSING = frozenset(
    {
        RejectionCode.CORDONED,
        RejectionCode.NO_STOCK,
        RejectionCode.JUST_LOST,
        RejectionCode.DEARER,
        RejectionCode.NODES_MAX,
        RejectionCode.COST_MAX,
        RejectionCode.TYPE_MAX,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why one offering was not it."""

    code: RejectionCode
    message: str  # one clause about the offering


def ruled_out(offering: Offering, capacity: CapacitySpec) -> Rejection | None:
    """Return which of the profile's rules an offering breaks, whatever is to run on it; None when none."""
    # Whole regions are on offer, so nothing is put into words but what is so.
    if capacity.gpus and offering.gpu not in capacity.gpus:
        return Rejection(code=RejectionCode.GPU, message=f"has {offering.gpu}, which is not among the profile's gpus")
    if capacity.region and offering.region != capacity.region:
        return Rejection(code=RejectionCode.REGION, message=f"is in {offering.region}, outside the profile's region")
    if capacity.zones and offering.zone not in capacity.zones:
        return Rejection(code=RejectionCode.ZONE, message=f"is in {offering.zone}, outside the profile's zones")
    return None


def _cordoned(offering: Offering) -> Rejection:
    return Rejection(code=RejectionCode.CORDONED, message=f"is in zone {offering.zone}, which is cordoned")


_NO_STOCK = Rejection(code=RejectionCode.NO_STOCK, message="could not be had lately")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The pick, or None, with the reason each other offering was not it."""

    offering: Offering | None
    reason: str  # one clause
    score: str = ""  # of the pick, with its terms
    passed_over: str = ""  # the next best and the cheaper ones, a clause each, a few at most
    rejected: dict[str, Rejection] = field(default_factory=dict)  # by Offering.key


@cached_by_identity(_LANES_KNOWN)
def possible_offerings(
    lane_plan: LanePlan, offerings: Sequence[Offering], capacity: CapacitySpec
) -> Sequence[Offering]:
    """Return the offerings that could carry a lane on the market they are of, whatever the present forbids.

    A region sells hundreds, and every launch of a decision looks at each: what can never be it is left out once. Where
    that is all of them, all are returned, as they say why.
    """
    found = [o for o in offerings if not (_rejection(o, lane_plan, o.market) or ruled_out(o, capacity))]
    return tuple(found) or offerings


def next_offering(  # noqa: PLR0913  # what a pick stands on, each named
    lane_plan: LanePlan,
    live: Sequence[Replica],
    market: Market,
    offerings: Sequence[Offering],
    *,
    capacity: CapacitySpec,
    avoid: AbstractSet[str] = frozenset(),
    hazards: Hazards = NOTHING_LEARNED,
    cordoned: AbstractSet[str] = frozenset(),
    orphaned: OrphanedCost = NONE_ORPHANED,
    price_max: float = math.inf,
) -> Placement:
    """Return where to launch the lane's next replica. `live` are all the fleet's replicas that hold a node.

    `avoid` holds keys of offerings that lately had no stock, `hazards` what was learned of them, `cordoned` zones,
    `price_max` is what one on spot may cost at most, in dollars an hour. No offering left is an answer, not an error: the
    caller may try the other market, or wait.
    """
    standing = [replica for replica in live if replica.state.is_live]
    rejected: dict[str, Rejection] = {}
    fitting: list[Offering] = []
    in_use = _InUse.of(standing, orphaned)
    machines_by_type = by_type(standing) if capacity.limits else {}
    for key, offering in sorted(((o.key, o) for o in offerings), key=itemgetter(0)):
        why = (
            _rejection(offering, lane_plan, market)
            or ruled_out(offering, capacity)
            or (_cordoned(offering) if offering.zone in cordoned else None)
            or (_NO_STOCK if key in avoid else None)
            or _just_lost(offering, hazards)
            or _dearer(offering, price_max)
            or _over_cap(offering, lane_plan.node_count, in_use, capacity)
            or _over_limit(offering, lane_plan.node_count, machines_by_type, capacity)
        )
        if why is not None:
            rejected[key] = why
        else:
            fitting.append(offering)
    full = full_zones(fitting, standing, offerings)
    rejected |= {key: Rejection(code=RejectionCode.NO_STOCK, message=why) for key, why in full.items()}
    fitting = [offering for offering in fitting if offering.key not in full]
    if not fitting:
        return Placement(offering=None, reason=_nothing(rejected, market), rejected=rejected)
    fitting = _planned_first(lane_plan, fitting, [replica for replica in standing if replica.lane == lane_plan.lane])
    zones = Counter(replica.zone for replica in standing if replica.lane == lane_plan.lane)
    scores = scored(fitting, zones, hazards)
    best = best_of(fitting, scores)
    risk = f", {hazards.text(best.key)}" if market is Market.SPOT else ""
    return Placement(
        offering=best,
        reason=f"{best.key}: {zones[best.zone]} of the lane's replicas in its zone, "
        f"${best.price_usd_per_hour:.4g} an hour{risk}, best of {len(fitting)}",
        score=str(scores[best.key]),
        passed_over=_passed_over(best, scores, fitting, offerings, rejected),
        rejected=rejected,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The offerings to order from, best first, all of one market; why the first is it, or why there is none."""

    offerings: tuple[Offering, ...]
    reason: str
    first: Placement | None = None  # how the first was picked; None: there is none


def ranked_offerings(  # noqa: PLR0913  # as a pick, and how far to go
    lane_plan: LanePlan,
    live: Sequence[Replica],
    market: Market,
    offerings: Sequence[Offering],
    *,
    capacity: CapacitySpec,
    avoid: AbstractSet[str],
    hazards: Hazards,
    may_fall_back: bool,
    most: int,
    late: AbstractSet[str] = frozenset(),
    cordoned: AbstractSet[str] = frozenset(),
    orphaned: OrphanedCost = NONE_ORPHANED,
) -> Ranking:
    """Return where to launch: on the market asked for, else, where that is spot and may fall back, on demand.

    An offering that has just lost a node is taken only where no other of its market is left: should it have no stock,
    the provider says so at once. Spot that costs far more than what is to be had on demand is a larger machine, and is
    none. One whose last order is `late` is taken only where nothing else is left at all.
    """
    if late:
        elsewhere = ranked_offerings(
            lane_plan,
            live,
            market,
            offerings,
            capacity=capacity,
            avoid={*avoid, *late},
            hazards=hazards,
            may_fall_back=may_fall_back,
            most=most,
            cordoned=cordoned,
            orphaned=orphaned,
        )
        if elsewhere.offerings:
            return elsewhere
    pick = partial(
        next_offering, lane_plan, live, offerings=offerings, capacity=capacity, cordoned=cordoned, orphaned=orphaned
    )
    if market is Market.SPOT:
        impossible = pick(market=Market.ON_DEMAND, avoid=avoid, hazards=hazards).rejected
        prices = [o.price_usd_per_hour for o in offerings if o.key not in impossible]
        pick = partial(pick, price_max=_DEARER_BY * min(prices, default=math.inf))
    attempts = [(market, hazards)]
    if market is Market.SPOT and may_fall_back:
        attempts += [(Market.SPOT, replace(hazards, avoids=False)), (Market.ON_DEMAND, hazards)]
    why: list[str] = []
    for tried, known in attempts:
        first = pick(market=tried, avoid=avoid, hazards=known)
        why.append(first.reason)
        if first.offering is not None:
            own = [r for r in live if r.state.is_live and r.lane == lane_plan.lane]
            fitting = _planned_first(lane_plan, [o for o in offerings if o.key not in first.rejected], own)
            found = _in_order(lane_plan, live, first.offering, fitting, known, most)
            return Ranking(offerings=tuple(found), reason=first.reason, first=first)
    return Ranking(offerings=(), reason="; ".join(dict.fromkeys(why)))


def _in_order(
    lane_plan: LanePlan,
    live: Sequence[Replica],
    first: Offering,
    fitting: Sequence[Offering],
    hazards: Hazards,
    most: int,
) -> list[Offering]:
    """Return up to `most` of the offerings that fit, each the pick among those that are left."""
    zones = Counter(r.zone for r in live if r.state.is_live and r.lane == lane_plan.lane)
    found, left = [first], [o for o in fitting if o is not first]
    while left and len(found) < most:
        found.append(best_of(left, scored(left, zones, hazards)))
        left.remove(found[-1])
    return found


def _is_of_another_kind(offering: Offering, planned: Offering) -> bool:
    """Whether one is this machine's own and the other is not. Plans of earlier versions do not say what is emulated."""
    is_here, was_here = offering.pool_gpus is not None, planned.pool_gpus is not None
    if offering.is_on_cpu is not planned.is_on_cpu:
        return True
    return is_here is not was_here or (planned.is_emulated and not offering.is_emulated)


def _rejection(offering: Offering, lane_plan: LanePlan, market: Market) -> Rejection | None:
    """Return why an offering cannot carry this lane; None when it can."""
    count, needed = offering.gpu_count, lane_plan.gpus_each_node
    if offering.market is not market:
        return Rejection(code=RejectionCode.MARKET, message=f"is {offering.market}, not {market}")
    if offering.gpu != lane_plan.gpu:
        message = f"has {offering.gpu}, and the lane was planned on {lane_plan.gpu}"
        return Rejection(code=RejectionCode.GPU, message=message)
    if count < needed:
        message = f"has {count} GPUs, and the model is split over {needed}"
        return Rejection(code=RejectionCode.GPU_COUNT, message=message)
    if _is_of_another_kind(offering, lane_plan.offering):
        message = "is emulated" if offering.is_emulated else "is no emulated one, as the lane was planned on"
        return Rejection(code=RejectionCode.EMULATED, message=message)
    if (offering.pool_gpus is not None or offering.is_on_cpu) and count > needed:
        message = f"is a share of {count} GPUs, and the lane takes {needed}"
        return Rejection(code=RejectionCode.SHARE, message=message)
    return None


def _just_lost(offering: Offering, hazards: Hazards) -> Rejection | None:
    """Return that a spot node was taken from an offering so lately that the next would likely be too."""
    if offering.market is not Market.SPOT or not hazards.is_avoided(offering.key):
        return None
    return Rejection(code=RejectionCode.JUST_LOST, message=f"{offering.key} {hazards.lost_text(offering.key)}")


def _dearer(offering: Offering, price_max: float) -> Rejection | None:
    if offering.market is not Market.SPOT or offering.price_usd_per_hour <= price_max:
        return None
    message = f"costs ${offering.price_usd_per_hour:.4g} an hour on spot, over the ${price_max:.4g} that it is worth beside one on demand"
    return Rejection(code=RejectionCode.DEARER, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class _InUse:
    """What counts against the caps before another replica is launched."""

    machines: int
    usd_per_hour: float

    @classmethod
    def of(cls, standing: Sequence[Replica], orphaned: OrphanedCost) -> _InUse:
        spent = math.fsum(replica.price_usd_per_hour for replica in standing) + orphaned.total_usd_per_hour
        return cls(machines=machine_count(standing) + orphaned.machines, usd_per_hour=spent)


def _over_cap(offering: Offering, nodes: int, in_use: _InUse, capacity: CapacitySpec) -> Rejection | None:
    """Return which cap so many more machines of an offering would cross; None when none."""
    if in_use.machines + nodes > capacity.max_nodes:
        full = f"all {capacity.max_nodes} nodes of max_nodes are in use"
        short = f"a replica spans {nodes} nodes, and {in_use.machines} of max_nodes {capacity.max_nodes} are in use"
        message = full if in_use.machines >= capacity.max_nodes else short
        return Rejection(code=RejectionCode.NODES_MAX, message=message)
    price, most = offering.price_usd_per_hour * nodes, capacity.max_cost_usd_per_hour
    if most is not None and in_use.usd_per_hour + price > most + 1e-9:
        message = f"would bring the cost to ${in_use.usd_per_hour + price:.2f} an hour, over ${most:.2f}"
        return Rejection(code=RejectionCode.COST_MAX, message=message)
    return None


def _over_limit(
    offering: Offering, nodes: int, machines: Mapping[str, int], capacity: CapacitySpec
) -> Rejection | None:
    """Return that so many more machines of a type would cross the profile's limit on it."""
    name = offering.instance_type
    most, have = capacity.limits.get(name), machines.get(name, 0)
    if most is None or have + nodes <= most:
        return None
    return Rejection(code=RejectionCode.TYPE_MAX, message=f"{have} {name} of capacity.limits' {most} are in use")


def _planned_first(lane_plan: LanePlan, fitting: list[Offering], own: Sequence[Replica]) -> list[Offering]:
    """Return, of a lane planned on several types, the offerings of those that it has fewer machines of than planned.

    All, where it has every one of them and wants more.
    """
    if not lane_plan.mix:
        return fitting
    there = by_type(own)
    planned: Counter[str] = Counter()
    for each in lane_plan.mix:
        planned[each.offering.instance_type] += each.machines * lane_plan.node_count
    return [o for o in fitting if there.get(o.instance_type, 0) < planned[o.instance_type]] or fitting


def _nothing(rejected: dict[str, Rejection], market: Market) -> str:
    # What could never have fitted says less than a cap or a stock-out on what could.
    common = [rejection for rejection, _ in Counter(rejected.values()).most_common()]
    near = [rejection for rejection in common if rejection.code.is_passing] or common
    return f"no {market} offering fits: {near[0].message if near else 'nothing is on offer'}"


def _passed_over(
    best: Offering,
    scores: Mapping[str, Score],
    fitting: Sequence[Offering],
    offerings: Iterable[Offering],
    rejected: Mapping[str, Rejection],
) -> str:
    """Return the next best with their scores, then of each kind of rejection the cheapest, where that is no dearer.

    At most six clauses, however many offerings there are.
    """
    beaten = sorted((o for o in fitting if o is not best), key=lambda o: (-scores[o.key].total, o.key))
    clauses = [f"{_named(o)} scored {scores[o.key]}" for o in beaten[:_BEATEN_MAX]]
    by_code: dict[str, list[Offering]] = defaultdict(list)
    for offering in offerings:
        found = rejected.get(offering.key)
        if found is not None and (found.code.is_passing or offering.price_usd_per_hour < best.price_usd_per_hour):
            by_code[found.code.value].append(offering)
    cheapest = {code: min(alike, key=lambda o: (o.price_usd_per_hour, o.key)) for code, alike in by_code.items()}
    for code, offering in sorted(cheapest.items(), key=lambda item: item[1].price_usd_per_hour)[:_REASONS_MAX]:
        others = len(by_code[code]) - 1
        alike = f", and {others} more" if others else ""
        clauses.append(f"{_named(offering)} {rejected[offering.key].message}{alike}")
    return "; ".join(clauses)


def _named(offering: Offering) -> str:
    return f"{offering.key} ({format_usd(offering.price_usd_per_hour)}/h)"

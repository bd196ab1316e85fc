"""Which offering carries the next replica: filter, score, pick. Spread over zones; caps are never crossed."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.core.hazard import NOTHING_LEARNED, Hazards
from fleetctl.core.machines import machine_count
from fleetctl.core.orphaned import NONE_ORPHANED, OrphanedCost
from fleetctl.model.catalogue import Market, Offering
from fleetctl.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet

    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import CapacitySpec
    from fleetctl.model.replica import Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What counts among the offerings that fit; the three sum to one."""

    spread: float  # few of the lane's replicas in its zone
    safety: float  # a low hazard beside the others'
    price: float  # a low price beside the others'


# Losing a zone takes its spot nodes together, so spreading weighs more there than a few cents.
_WEIGHTS = {
    Market.SPOT: Weights(spread=0.35, safety=0.35, price=0.3),
    Market.ON_DEMAND: Weights(spread=0.4, safety=0.0, price=0.6),
}


# Prices differ by zone; what costs half as much again as the lane on demand is another class of machine.
_DEARER_BY = 1.5

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
    NO_STOCK = "no-stock"  # lately
    JUST_LOST = "just-lost"  # a node was taken there lately
    DEARER = "dearer"  # spot that costs far more than its lane on demand
    NODES_MAX = "nodes-max"  # one more node would cross the profile's cap
    COST_MAX = "cost-max"  # its price would

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
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why one offering was not it."""

    code: RejectionCode
    message: str  # one clause about the offering


def ruled_out(offering: Offering, capacity: CapacitySpec) -> Rejection | None:
    """Return which of the profile's rules an offering breaks, whatever is to run on it; None when none."""
    broken = {
        RejectionCode.GPU: (
            bool(capacity.gpus) and offering.gpu not in capacity.gpus,
            f"has {offering.gpu}, which is not among the profile's gpus",
        ),
        RejectionCode.REGION: (
            bool(capacity.region) and offering.region != capacity.region,
            f"is in {offering.region}, outside the profile's region",
        ),
        RejectionCode.ZONE: (
            bool(capacity.zones) and offering.zone not in capacity.zones,
            f"is in {offering.zone}, outside the profile's zones",
        ),
    }
    return _first(broken)


def _cordoned(offering: Offering) -> Rejection:
    return Rejection(code=RejectionCode.CORDONED, message=f"is in zone {offering.zone}, which is cordoned")


_NO_STOCK = Rejection(code=RejectionCode.NO_STOCK, message="had no stock lately")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The pick, or None, with the reason each other offering was not it."""

    offering: Offering | None
    reason: str  # one clause
    score: str = ""  # of the pick, with its terms
    passed_over: str = ""  # the next best and the cheaper ones, a clause each, a few at most
    rejected: dict[str, Rejection] = field(default_factory=dict)  # by Offering.key


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
    for offering in sorted(offerings, key=lambda o: o.key):
        why = (
            _rejection(offering, lane_plan, market)
            or ruled_out(offering, capacity)
            or (_cordoned(offering) if offering.zone in cordoned else None)
            or (_NO_STOCK if offering.key in avoid else None)
            or _just_lost(offering, hazards)
            or _dearer(offering, price_max)
            or _over_cap(offering, lane_plan.node_count, standing, orphaned, capacity)
        )
        if why is not None:
            rejected[offering.key] = why
        else:
            fitting.append(offering)
    if not fitting:
        return Placement(offering=None, reason=_nothing(rejected, market), rejected=rejected)
    zones = Counter(replica.zone for replica in standing if replica.lane == lane_plan.lane)
    scores = {o.key: terms(o, fitting, zones, hazards) for o in fitting}
    best = max(fitting, key=lambda o: (scores[o.key].total, -o.price_usd_per_hour, o.key))
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
        found: list[Offering] = []
        passed_over = set(avoid)
        first = placed = pick(market=tried, avoid=passed_over, hazards=known)
        why.append(placed.reason)
        while placed.offering is not None and len(found) < most:
            found.append(placed.offering)
            passed_over.add(placed.offering.key)
            placed = pick(market=tried, avoid=passed_over, hazards=known)
        if found:
            return Ranking(offerings=tuple(found), reason=first.reason, first=first)
    return Ranking(offerings=(), reason="; ".join(dict.fromkeys(why)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What speaks for an offering beside the others that fit, each from 0 to 1, and what each counts."""

    weights: Weights
    spread: float
    safety: float
    price: float

    @property
    def total(self) -> float:
        """Return 0 to 1."""
        weights = self.weights
        return weights.spread * self.spread + weights.safety * self.safety + weights.price * self.price

    def __str__(self) -> str:
        """Return "0.72 = 0.35 x spread 1 + 0.35 x safety 0.5 + 0.3 x price 0.65"; what counts nothing is left out."""
        weights = self.weights
        counted = (
            (weights.spread, "spread", self.spread),
            (weights.safety, "safety", self.safety),
            (weights.price, "price", self.price),
        )
        terms = (f"{weight:g} x {name} {value:.2g}" for weight, name, value in counted if weight)
        return f"{self.total:.2f} = {' + '.join(terms)}"


def score(
    offering: Offering, fitting: Sequence[Offering], zones: Counter[str], hazards: Hazards = NOTHING_LEARNED
) -> float:
    """Return 0 to 1: cheap and safe beside the other fitting offerings, in a zone with few of the lane's replicas."""
    return terms(offering, fitting, zones, hazards).total


def terms(offering: Offering, fitting: Sequence[Offering], zones: Counter[str], hazards: Hazards) -> Score:
    """Return what the score is made of."""
    cheapest = min(o.price_usd_per_hour for o in fitting)
    return Score(
        weights=_WEIGHTS[offering.market],
        spread=1.0 / (1 + zones[offering.zone]),
        safety=min(hazards.per_h(o.key) for o in fitting) / hazards.per_h(offering.key),
        price=cheapest / offering.price_usd_per_hour if offering.price_usd_per_hour > 0 else 1.0,
    )


def _is_of_another_kind(offering: Offering, planned: Offering) -> bool:
    """Whether one is this machine's own and the other is not. Plans of earlier versions do not say what is emulated."""
    is_here, was_here = offering.pool_gpus is not None, planned.pool_gpus is not None
    if offering.is_on_cpu is not planned.is_on_cpu:
        return True
    return is_here is not was_here or (planned.is_emulated and not offering.is_emulated)


def _rejection(offering: Offering, lane_plan: LanePlan, market: Market) -> Rejection | None:
    """Return why an offering cannot carry this lane; None when it can."""
    wrong = {
        RejectionCode.MARKET: (offering.market is not market, f"is {offering.market}, not {market}"),
        RejectionCode.GPU: (
            offering.gpu != lane_plan.gpu,
            f"has {offering.gpu}, and the lane was planned on {lane_plan.gpu}",
        ),
        RejectionCode.GPU_COUNT: (
            offering.gpu_count < lane_plan.gpus_each_node,
            f"has {offering.gpu_count} GPUs, and the model is split over {lane_plan.gpus_each_node}",
        ),
        RejectionCode.EMULATED: (
            _is_of_another_kind(offering, lane_plan.offering),
            "is emulated" if offering.is_emulated else "is no emulated one, as the lane was planned on",
        ),
        RejectionCode.SHARE: (
            (offering.pool_gpus is not None or offering.is_on_cpu) and offering.gpu_count > lane_plan.gpus_each_node,
            f"is a share of {offering.gpu_count} GPUs, and the lane takes {lane_plan.gpus_each_node}",
        ),
    }
    return _first(wrong)


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


def _over_cap(
    offering: Offering, nodes: int, standing: Sequence[Replica], orphaned: OrphanedCost, capacity: CapacitySpec
) -> Rejection | None:
    """Return which cap so many more machines of an offering would cross; None when none."""
    in_use = machine_count(standing) + orphaned.machines
    if in_use + nodes > capacity.max_nodes:
        full = f"all {capacity.max_nodes} nodes of max_nodes are in use"
        short = f"a replica spans {nodes} nodes, and {in_use} of max_nodes {capacity.max_nodes} are in use"
        return Rejection(code=RejectionCode.NODES_MAX, message=full if in_use >= capacity.max_nodes else short)
    price = offering.price_usd_per_hour * nodes
    most = capacity.max_cost_usd_per_hour
    spent = math.fsum(replica.price_usd_per_hour for replica in standing) + orphaned.usd_per_hour
    if most is not None and spent + price > most + 1e-9:
        message = f"would bring the cost to ${spent + price:.2f} an hour, over ${most:.2f}"
        return Rejection(code=RejectionCode.COST_MAX, message=message)
    return None


def _first(broken: dict[RejectionCode, tuple[bool, str]]) -> Rejection | None:
    return next((Rejection(code=code, message=says) for code, (is_so, says) in broken.items() if is_so), None)


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

"""What speaks for an offering beside the others that fit: spread over zones, safety, price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.hazard import NOTHING_LEARNED, Hazards
from fleetctl.model.catalogue import Market

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

    from fleetctl.model.catalogue import Offering


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
    return scored([offering, *fitting], zones, hazards)[offering.key]


def scored(fitting: Sequence[Offering], zones: Counter[str], hazards: Hazards) -> dict[str, Score]:
    """Return what every offering's score is made of, by its key: all are compared with the same cheapest and safest."""
    cheapest = min(o.price_usd_per_hour for o in fitting)
    per_h = {o.key: hazards.per_h(o.key) for o in fitting}
    safest = min(per_h.values())
    return {
        o.key: Score(
            weights=_WEIGHTS[o.market],
            spread=1.0 / (1 + zones[o.zone]),
            safety=safest / per_h[o.key],
            price=cheapest / o.price_usd_per_hour if o.price_usd_per_hour > 0 else 1.0,
        )
        for o in fitting
    }


def best_of(fitting: Sequence[Offering], scores: Mapping[str, Score]) -> Offering:
    """Return the one with the highest score; of equals the cheapest, then the last by its key."""
    return max(fitting, key=lambda o: (scores[o.key].total, -o.price_usd_per_hour, o.key))

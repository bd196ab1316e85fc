"""A profile's API keys by the names of their clients: what the gateway would give the requests that a trace says are theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.admission.generation import strictest
from fleetctl.core.fairness.entitlement import entitled
from fleetctl.model.generation import GenerationSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.fairness.tier import LaneTier
    from fleetctl.load.trace import Arrival
    from fleetctl.model.profile import GatewaySpec
    from fleetctl.model.tiers import TierSpec


class NamedKeys:
    """Those of one profile."""

    def __init__(self, gateway: GatewaySpec, tiers: Iterable[TierSpec] = ()) -> None:
        names = gateway.key_names
        self._tiers = {name: gateway.key_tiers.get(reference, "") for reference, name in names.items()}
        self._bounds = {
            names[reference]: bounds for reference, bounds in gateway.key_generation.items() if reference in names
        }
        by_tier = {tier.name: tier.generation for tier in tiers}
        own = {
            name: strictest(GenerationSpec(), self._bounds.get(name), by_tier.get(tier))
            for name, tier in self._tiers.items()
        }
        self._own_max = {name: spec.max_tokens for name, spec in own.items() if spec.max_tokens is not None}
        self._takes_header = gateway.tier_header

    def tier(self, row: Arrival, lane: DispatchLane[ActiveRequest]) -> LaneTier | None:
        """Return the tier of a request in a lane. None: the lane has none.

        Of a client that has a key of that name, it is what the gateway gives it: the key's, or a lower one that the row names. Of any
        other it is the row's own, as who it stands for is not known, or the lane's.
        """
        if lane.tiers is None:
            return None
        own = self._tiers.get(row.client)
        if own is None:
            return lane.tiers.named(row.tier) or lane.tiers.default
        named = row.tier if self._takes_header and lane.tiers.named(row.tier) is not None else ""
        return entitled(lane.tiers, own, named)

    def own_max(self, client: str) -> int | None:
        """Return the longest answer that a client's key and that key's tier let it have, whatever its lane. None: any."""
        return self._own_max.get(client)

    def bounds(self, row: Arrival, lane: DispatchLane[ActiveRequest], tier: LaneTier | None) -> GenerationSpec:
        """Return what holds for a request's answer: of the lane's, the tier's and the key's bounds the strictest."""
        own = tier.spec.generation if tier is not None else None
        return strictest(lane.route.generation, own, self._bounds.get(row.client))

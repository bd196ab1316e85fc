"""The kinds of replica that could carry a lane; each is sized when somebody looks at it, and most are never looked at."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.plan.bounds import fewest_conceivable
from fleetctl.core.plan.options import Option, priced_option, sold, takes_scarce
from fleetctl.core.plan.sizing import size
from fleetctl.model.catalogue import Market
from fleetctl.model.profile import SpotPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fleetctl.core.plan.instances import Instance
    from fleetctl.core.plan.sizing import SizingResult
    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.profile import LaneSpec, Profile


class LaneCandidates:
    """One lane's kinds of replica, on every machine that has them, with what is known so far of what each takes."""

    def __init__(
        self,
        profile: Profile,
        lane: LaneSpec,
        demand: LaneDemand,
        found: Sequence[Instance],
        *,
        guests_itl_s: float | None,
    ) -> None:
        self.lane, self.demand, self.found = lane, demand, found
        self._profile = profile
        self._guests_itl_s = guests_itl_s
        self._known: dict[tuple[object, ...], SizingResult | None] = {}
        self._kinds: dict[tuple[object, ...], list[Instance]] = {}
        for one in found:
            self._kinds.setdefault(one.alike, []).append(one)

    def sizings(self) -> list[SizingResult]:
        """Return what each instance that can carry the lane takes: all of them are sized."""
        return self._sizings(self.found)

    def options(self, results: Iterable[SizingResult]) -> list[Option]:
        """Return the ways to carry the lane by what was sized, cheapest first, without their machines' other layouts."""
        options = [
            priced_option(self._profile, self.lane, self.demand, one, alike=self._alike(one.instance))
            for one in results
        ]
        return sorted(
            options, key=lambda o: (o.ranked_usd_per_hour, o.free_gpus, o.nodes, o.result.instance.ranks, o.key)
        )

    def promising(self) -> list[Option]:
        """Return the options that the cheapest fleet may need while the cap on nodes does not bind, cheapest first.

        Kinds are sized from that whose floor costs least, until a floor is above what an option that takes nothing scarce costs
        in full: what is left out can neither be the lane's cheapest nor save what lanes share. Empty: none is within the
        lane's bound.
        """
        floors = sorted((self._floor_usd(kind), number) for number, kind in enumerate(self._kinds.values()))
        kinds, best_usd, looked_at = list(self._kinds.values()), math.inf, set()
        for floor_usd, number in floors:
            if floor_usd > best_usd or math.isinf(floor_usd):
                break
            looked_at.add(number)
            for option in self.options(self._within(kinds[number])):
                if option.cost_usd_per_hour > 0.0 and not takes_scarce(self._profile.capacity, option):
                    best_usd = min(best_usd, max(option.ranked_usd_per_hour, option.tied_usd_per_hour))
        taken = {kinds[number][0].alike for number in looked_at}
        return self.options(self._within([one for one in self.found if one.alike in taken]))

    def with_layouts(self, option: Option) -> Option:
        """Return an option with its machines' other layouts, sized."""
        own = option.result.instance
        same = [one for one in self.found if one is not own and one.cheapest.key == own.cheapest.key]
        return replace(option, others=tuple(self._sizings(same)))

    def _within(self, instances: Sequence[Instance]) -> list[SizingResult]:
        return [one for one in self._sizings(instances) if one.needed <= self.lane.replicas.max]

    def _sizings(self, instances: Sequence[Instance]) -> list[SizingResult]:
        """Return what instances take; those whose replicas are alike are sized once."""
        for one in instances:
            if one.alike not in self._known:
                self._known[one.alike] = size(self.lane, one, self.demand, guests_itl_s=self._guests_itl_s)
        return [replace(sizing, instance=one) for one in instances if (sizing := self._known[one.alike]) is not None]

    def _alike(self, own: Instance) -> tuple[Instance, ...]:
        """Return the other instances whose replicas are like this one's."""
        return tuple(one for one in self._kinds[own.alike] if one is not own)

    def _floor_usd(self, kind: Sequence[Instance]) -> float:
        """Return what the fewest conceivable replicas of a kind cost an hour on the cheapest part of a machine that has them."""
        fewest = fewest_conceivable(self.lane, kind[0], self.demand)
        if math.isinf(fewest):
            return math.inf
        replicas = max(math.ceil(fewest), self.lane.replicas.min, 1)
        return replicas * min(
            offering.price_usd_per_hour * one.node_count / one.replicas_each_machine
            for one in kind
            for offering in self._bought(one)
        )

    def _bought(self, one: Instance) -> list[Offering]:
        """Return how the lane may buy an instance."""
        if self.lane.spot is SpotPolicy.NONE:
            return [one.cheapest]  # on demand, where it is sold so
        return [offering for market in Market if (offering := sold(one, market)) is not None]

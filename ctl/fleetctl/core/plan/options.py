"""One way to carry a lane: replicas of one kind, and the machines, of one type or several, that they are bought on."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fleetctl.core.plan.instances import Instance
from fleetctl.core.plan.markets import Markets, split_markets
from fleetctl.core.plan.one_machine import GpuDemand
from fleetctl.core.plan.sizing import SizingResult
from fleetctl.core.plan.workload import LaneDemand
from fleetctl.model.catalogue import Market, Offering
from fleetctl.model.plan import MachineCount
from fleetctl.model.profile import CapacitySpec, LaneSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.profile import Profile

MACHINE_USD: Final = 1e-5  # among equals fewer machines: far below a cent
MIX_SAVES_MIN: Final = 0.02  # of a lane's cost: for less, one type of machine is simpler to hold and to replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to carry a lane."""

    lane: LaneSpec
    demand: LaneDemand
    result: SizingResult
    markets: Markets
    machines: tuple[MachineCount, ...]  # the largest first in each market
    alike: tuple[Instance, ...] = ()  # where else such replicas can be bought
    others: tuple[SizingResult, ...] = ()  # the same nodes' other layouts

    @property
    def cost_usd_per_hour(self) -> float:
        """Return what its machines cost."""
        spans = self.result.instance.node_count
        return math.fsum(each.machines * spans * each.offering.price_usd_per_hour for each in self.machines)

    @property
    def ranked_usd_per_hour(self) -> float:
        """Return what it is compared at: of a mix more, by what one has to save."""
        return self.cost_usd_per_hour * (1.0 + MIX_SAVES_MIN if self.mix else 1.0)

    @property
    def tied_usd_per_hour(self) -> float:
        """Return what it costs with what breaks ties."""
        return self.cost_usd_per_hour + MACHINE_USD * self.nodes

    @property
    def mix(self) -> tuple[MachineCount, ...]:
        """Return its machines where they are of several types; empty: all are of the instance's own."""
        return () if self.machines == _plain(self.result.instance, self.markets) else self.machines

    @property
    def nodes(self) -> int:
        """Return the machines it takes."""
        return sum(each.machines for each in self.machines) * self.result.instance.node_count

    @property
    def gpus(self) -> int:
        """Return the GPUs its replicas take."""
        return self.markets.replicas * self.result.instance.node_count * self.result.instance.layout.gpus

    @property
    def gpu_demand(self) -> GpuDemand:
        """Return what it takes of a machine or cluster that has only so many GPUs."""
        instance = self.result.instance
        gpus_each = instance.layout.gpus * instance.node_count
        return GpuDemand(
            lane=self.lane.name, offering=instance.cheapest, replicas=self.markets.replicas, gpus_each=gpus_each
        )

    @property
    def free_gpus(self) -> int:
        """Return the GPUs an option takes where they cost nothing: then it is they that are saved."""
        return 0 if self.cost_usd_per_hour else self.gpus

    @property
    def key(self) -> str:
        """Return what ties are broken by."""
        return self.result.instance.cheapest.key


def priced_option(  # a lane, what was sized for it, and what else there is
    profile: Profile,
    lane: LaneSpec,
    demand: LaneDemand,
    one: SizingResult,
    *,
    alike: tuple[Instance, ...] = (),
    others: tuple[SizingResult, ...] = (),
) -> Option:
    """Return one way to carry a lane: how its replicas are bought, and on which machines.

    Machines of the instance's own type are filled; what is left over goes to a smaller type where that saves enough.
    """
    policy, knee = profile.capacity.on_demand, one.knee_rps
    markets = split_markets(lane, one.instance, policy, needed=one.needed, demand=demand, knee_rps=knee)
    plain = Option(
        lane=lane, demand=demand, result=one, markets=markets, machines=_plain(one.instance, markets), alike=alike,
        others=others,
    )  # fmt: skip
    mixed = replace(plain, machines=_mixed(plain))
    saves = plain.cost_usd_per_hour - mixed.cost_usd_per_hour
    return mixed if saves > MIX_SAVES_MIN * plain.cost_usd_per_hour else plain


def counted(markets: Markets) -> tuple[tuple[Market, int], ...]:
    """Return how many replicas are bought on each market that has any."""
    found = ((Market.ON_DEMAND, markets.on_demand), (Market.SPOT, markets.spot))
    return tuple((market, count) for market, count in found if count)


def sold(instance: Instance, market: Market) -> Offering | None:
    """Return how an instance is bought on a market; where nothing is said of one, it costs what there is."""
    return instance.on_demand if market is Market.ON_DEMAND else instance.spot


def smaller(option: Option, market: Market) -> tuple[Instance, ...]:
    """Return the types, alike but for their size, that carry fewer of its replicas: whose loss takes no more of them."""
    most = option.result.instance.replicas_each_machine
    return tuple(one for one in option.alike if one.replicas_each_machine < most and sold(one, market) is not None)


def takes_scarce(capacity: CapacitySpec, option: Option) -> bool:
    """Whether an option's machines count against a limit, or are of a pool that has only so many GPUs."""
    offerings = [each.offering for each in option.machines]
    return any(each.instance_type in capacity.limits or each.pool_gpus is not None for each in offerings)


def _plain(instance: Instance, markets: Markets) -> tuple[MachineCount, ...]:
    spans = instance.node_count
    return tuple(
        MachineCount(offering=sold(instance, market) or instance.cheapest, machines=instance.machines(count) // spans)
        for market, count in counted(markets)
    )


def _mixed(option: Option) -> tuple[MachineCount, ...]:
    """Return its machines with the last one of each market in smaller ones, where these cost less."""
    found: list[MachineCount] = []
    for own, (market, count) in zip(option.machines, counted(option.markets), strict=True):
        each = option.result.instance.replicas_each_machine
        rest = _cover(count % each, smaller(option, market), market) if count % each else ()
        usd = math.fsum(part.machines * part.offering.price_usd_per_hour for part in rest)
        if rest and usd < own.offering.price_usd_per_hour:
            found += [replace(own, machines=own.machines - 1)] if own.machines > 1 else []
            found += rest
        else:
            found.append(own)
    return tuple(found)


def _cover(replicas: int, types: Sequence[Instance], market: Market) -> tuple[MachineCount, ...]:
    """Return the cheapest machines for a few replicas; empty where there are none."""
    best: list[tuple[float, tuple[Offering, ...]]] = [(0.0, ()), *((math.inf, ()) for _ in range(replicas))]
    for count in range(1, replicas + 1):
        for one in types:
            offering = sold(one, market)
            usd, taken = best[max(0, count - one.replicas_each_machine)]
            if offering is not None and usd + offering.price_usd_per_hour < best[count][0]:
                best[count] = usd + offering.price_usd_per_hour, (*taken, offering)
    counts: dict[str, int] = defaultdict(int)
    by_key = {offering.key: offering for offering in best[replicas][1]}
    for offering in best[replicas][1]:
        counts[offering.key] += 1
    ranked = sorted(by_key, key=lambda key: (-by_key[key].gpu_count, key))
    return tuple(MachineCount(offering=by_key[key], machines=counts[key]) for key in ranked)

"""How a lane's replicas are bought: on demand for what must stay, spot for the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from fleetctl.model.profile import OnDemandPolicy, SpotPolicy
from fleetctl.units import format_rps

if TYPE_CHECKING:
    from fleetctl.core.plan.instances import Instance
    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.profile import LaneSpec

BASELINE_UTILISATION = 0.7  # of the on-demand baseline, at the average load: the published spot rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Markets:
    """How many replicas are bought how, and why."""

    on_demand: int
    spot: int
    reason: str

    @property
    def replicas(self) -> int:
        """Return both together."""
        return self.on_demand + self.spot

    def machines(self, instance: Instance) -> int:
        """Return how many machines they take: those of one market share them."""
        return instance.machines(self.on_demand) + instance.machines(self.spot)

    def cost_usd_per_hour(self, instance: Instance) -> float:
        """Return what they cost on this instance."""
        on_demand = instance.on_demand.price_usd_per_hour if instance.on_demand else 0.0
        spot = instance.spot.price_usd_per_hour if instance.spot else 0.0
        return instance.machines(self.on_demand) * on_demand + instance.machines(self.spot) * spot


def split_markets(  # noqa: PLR0913  # the split's own inputs
    lane: LaneSpec,
    instance: Instance,
    policy: OnDemandPolicy,
    *,
    needed: int,
    demand: LaneDemand,
    knee_rps: float,
    has_spare: bool = True,
) -> Markets:
    """Return the replicas by market; `needed` replicas keep the promises, `knee_rps` is where one saturates.

    On demand: by the policy, usually what carries the average load at 70 % utilisation. The rest is spot, with one more
    than needed where losing one must not break a promise, unless the count is another's and `has_spare` is false.
    """
    wanted = max(needed, lane.replicas.min)
    if lane.spot is SpotPolicy.NONE or instance.spot is None:
        why = "the lane allows no spot" if lane.spot is SpotPolicy.NONE else "no spot is on offer for this instance"
        return Markets(on_demand=wanted, spot=0, reason=f"all on demand: {why}")
    if instance.on_demand is None:
        return Markets(on_demand=0, spot=wanted, reason="all spot: nothing else is on offer for this instance")
    baseline, why = _baseline(lane, policy, wanted=wanted, demand=demand, knee_rps=knee_rps)
    spot = wanted - baseline
    # What is taken is a machine, with all the replicas that share it.
    lost = instance.replicas_each_machine
    spare = min(needed + lost, lane.replicas.max) - wanted
    if has_spare and spot and not lane.interruptible and spare > 0:
        spot += spare
        why += f", {'one' if spare == 1 else spare} more than needed because spot may be taken"
    return Markets(on_demand=baseline, spot=spot, reason=why)


def _baseline(
    lane: LaneSpec, policy: OnDemandPolicy, *, wanted: int, demand: LaneDemand, knee_rps: float
) -> tuple[int, str]:
    """Return how many of a lane's replicas stay on demand where spot is allowed and on offer, and why."""
    if lane.spot is SpotPolicy.ALL:
        return 0, "all spot, as the lane says"
    match policy:
        case OnDemandPolicy.MINIMUM:
            return lane.replicas.min, f"{lane.replicas.min} on demand, the lane's minimum"
        case OnDemandPolicy.PEAK:
            return wanted, "all on demand: the planned peak"
        case OnDemandPolicy.BASELINE:
            baseline = min(wanted, max(1, math.ceil(demand.average_rps / (BASELINE_UTILISATION * knee_rps))))
            average = f"the average of {format_rps(demand.average_rps)} rps"
            return baseline, f"{baseline} on demand carry {average} at 70 % of their knee"
        case _ as never:
            assert_never(never)

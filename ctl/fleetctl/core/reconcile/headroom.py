"""What the fleet's hard caps, and the GPUs of a machine that has only so many, leave for another replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from fleetctl.core.machines import machine_count
from fleetctl.core.orphaned import NONE_ORPHANED, OrphanedCost
from fleetctl.core.shares import free_rooms, rooms_coming
from fleetctl.model.catalogue import Market, OfferingKey
from fleetctl.model.profile import CapacitySpec
from fleetctl.model.replica import ReplicaState
from fleetctl.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fleetctl.core.reconcile.replica_step import ReplicaStep
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.replica import Replica

_LEAVING = (ReplicaState.DRAINING, ReplicaState.STOPPING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaNeed:
    """What one more replica takes."""

    price_usd_per_hour: float  # of all its machines
    nodes: int = 1
    pool: str = ""  # the GPUs it takes some of, where there are only so many; empty: what is ordered comes with its own
    gpus: int = 0
    lane: str = ""  # whose replicas share machines, with the market; empty: each has its own
    each_machine: int = 1  # replicas of it


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPool:
    """GPUs of one machine that replicas take from."""

    gpu: str
    there: int
    left: int  # negative where more are taken than the plan in force knows of
    leaving: int = 0  # of those taken, that will be free soon

    def refusal(self, gpus: int) -> str:
        """Return why so many more may not be had, or an empty string."""
        if gpus <= self.left:
            return ""
        free = "none" if self.left < 1 else str(self.left)
        return f"of the machine's {self.there} {self.gpu} {free} {'is' if self.left == 1 else 'are'} free, and a replica takes {gpus}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """Nodes, money and GPUs left under the caps; they may be negative when a cap was lowered under a living fleet."""

    nodes: int
    usd_per_hour: float | None  # None: no cap
    capacity: CapacitySpec
    leaving_nodes: int = 0  # of those that are there, and will have ended soon
    leaving_usd_per_hour: float = 0.0
    pools: Mapping[str, GpuPool] = field(default_factory=dict)
    # On machines that a lane's replicas share, by ReplicaNeed.lane; those that are ordered have no name yet.
    rooms: Mapping[str, int] = field(default_factory=dict)
    rooms_coming: Mapping[str, int] = field(default_factory=dict)

    def has_vacancy(self, need: ReplicaNeed) -> bool:
        """Whether such a replica goes to a machine that is there, or ordered: it takes no node and no money."""
        return self.rooms.get(need.lane, 0) + self.rooms_coming.get(need.lane, 0) > 0

    def is_coming(self, need: ReplicaNeed) -> bool:
        """Whether such a replica waits for a machine that is ordered: it is launched once that has a name."""
        return not self.rooms.get(need.lane, 0) and self.rooms_coming.get(need.lane, 0) > 0

    def refusal(self, need: ReplicaNeed) -> str:
        """Return why such a replica may not be had, or an empty string."""
        if self.has_vacancy(need):
            return ""
        if self.nodes < 1:
            return f"at the fleet's cap of {self.capacity.max_nodes} nodes (capacity.max_nodes)"
        if self.nodes < need.nodes:
            return (
                f"a replica spans {need.nodes} nodes, and the fleet's cap of {self.capacity.max_nodes} (capacity.max_nodes) "
                f"leaves {self.nodes}"
            )
        # A cent's fraction of rounding must not refuse the node that fills the budget exactly.
        if self.usd_per_hour is not None and need.price_usd_per_hour > self.usd_per_hour + 1e-9:
            cap = format_usd(self.capacity.max_cost_usd_per_hour or 0.0)
            return (
                f"a node at {format_usd(need.price_usd_per_hour)}/h does not fit the fleet's cap of {cap}/h "
                f"(capacity.max_cost_per_hour), {format_usd(max(0.0, self.usd_per_hour))}/h is left"
            )
        pool = self.pools.get(need.pool)
        return pool.refusal(need.gpus) if pool is not None else ""

    def remedy(self, need: ReplicaNeed) -> str:
        """Return what makes room for a replica that may not be had: a cap is raised, a machine has what it has."""
        return "raise the cap" if replace(self, pools={}).refusal(need) else "plan fewer replicas"

    def frees(self, need: ReplicaNeed) -> bool:
        """Whether what is leaving makes room for a replica that may not be had now."""
        money = None if self.usd_per_hour is None else self.usd_per_hour + self.leaving_usd_per_hour
        pools = {name: replace(pool, left=pool.left + pool.leaving) for name, pool in self.pools.items()}
        soon = replace(self, nodes=self.nodes + self.leaving_nodes, usd_per_hour=money, pools=pools)
        return bool(self.refusal(need)) and not soon.refusal(need)

    def without(self, need: ReplicaNeed) -> Headroom:
        """Return what is left after one more replica."""
        money = None if self.usd_per_hour is None else self.usd_per_hour - need.price_usd_per_hour
        pools = {
            name: replace(pool, left=pool.left - need.gpus) if name == need.pool else pool
            for name, pool in self.pools.items()
        }
        if self.is_coming(need):
            return replace(self, rooms_coming=_with_fewer(self.rooms_coming, need.lane))
        if self.has_vacancy(need):
            return replace(self, rooms=_with_fewer(self.rooms, need.lane))
        coming = {**self.rooms_coming, need.lane: need.each_machine - 1} if need.lane else self.rooms_coming
        return replace(self, nodes=self.nodes - need.nodes, usd_per_hour=money, pools=pools, rooms_coming=coming)


def need_of(plan: LanePlan, market: Market) -> ReplicaNeed:
    """Return what the plan reckons with for one replica of this market."""
    offering = plan.spot_offering if market is Market.SPOT and plan.spot_offering else plan.offering
    return ReplicaNeed(
        price_usd_per_hour=offering.price_usd_per_hour * plan.node_count,
        nodes=plan.node_count,
        pool=_pool_of(offering),
        gpus=plan.gpus_each_node if offering.pool_gpus is not None else 0,
        lane=f"{plan.lane}/{offering.market}" if plan.replicas_each_machine > 1 else "",
        each_machine=plan.replicas_each_machine,
    )


def headroom_left(
    capacity: CapacitySpec,
    steps: Iterable[ReplicaStep],
    *,
    lanes: Iterable[LanePlan] = (),
    orphaned: OrphanedCost = NONE_ORPHANED,
    digests: Mapping[str, str] = MappingProxyType({}),
) -> Headroom:
    """Return what the caps leave once every death that was just seen is recorded, and the machine that `lanes` are on.

    Orphaned nodes are paid for until they have ended, and one that cannot be stopped may stay for long. `digests` are by
    lane what its replicas are started with now: only such share a machine.
    """
    there = [o for o in steps if o.state.is_live]
    living = [o.replica.record for o in there]
    staying = [o.replica.record for o in there if o.state not in _LEAVING]
    staying_usd = sum(record.price_usd_per_hour for record in staying)
    cap = capacity.max_cost_usd_per_hour
    spent = sum(record.price_usd_per_hour for record in living) + orphaned.total_usd_per_hour
    lane_plans = tuple(lanes)
    shared = [
        (need_of(plan, market).lane, plan, market, digests.get(plan.lane, ""))
        for plan in lane_plans
        if plan.replicas_each_machine > 1
        for market in Market
    ]
    return Headroom(
        nodes=capacity.max_nodes - machine_count(living) - orphaned.machines,
        usd_per_hour=None if cap is None else cap - spent,
        capacity=capacity,
        leaving_nodes=machine_count(living) - machine_count(staying) + orphaned.machines,
        leaving_usd_per_hour=spent - staying_usd - orphaned.head_usd_per_hour,
        pools=_pools(lane_plans, living, staying),
        rooms={name: free_rooms(plan, living, market, digest) for name, plan, market, digest in shared},
        rooms_coming={name: rooms_coming(plan, living, market, digest) for name, plan, market, digest in shared},
    )


def _with_fewer(rooms: Mapping[str, int], lane: str) -> dict[str, int]:
    return {**rooms, lane: rooms[lane] - 1}


def _pools(lanes: tuple[LanePlan, ...], living: Sequence[Replica], staying: Sequence[Replica]) -> dict[str, GpuPool]:
    """Return the GPUs of the machine that these lanes are planned on, by kind. Other fleets on it are not seen."""
    planned = {lane.lane: lane for lane in lanes}
    pools: dict[str, GpuPool] = {}
    for offering in (lane.offering for lane in lanes):
        if offering.pool_gpus is None or _pool_of(offering) in pools:
            continue

        def taken(records: Sequence[Replica], offering: Offering = offering) -> int:
            here = [r for r in records if r.gpu == offering.gpu and OfferingKey.parse(r.offering).zone == offering.zone]
            # One that is still ordered has none pinned yet, and will have what its lane's are planned with.
            return sum(len(r.gpu_indices) or (planned[r.lane].gpus_each_node if r.lane in planned else 1) for r in here)

        held, kept = taken(living), taken(staying)
        pools[_pool_of(offering)] = GpuPool(
            gpu=offering.gpu, there=offering.pool_gpus, left=offering.pool_gpus - held, leaving=held - kept
        )
    return pools


def _pool_of(offering: Offering) -> str:
    return f"{offering.zone}/{offering.gpu}" if offering.pool_gpus is not None else ""

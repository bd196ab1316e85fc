"""What the fleet's hard caps, and the GPUs of a machine that has only so many, leave for another replica."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from fleetctl.core.machines import machine_count
from fleetctl.core.orphaned import NONE_ORPHANED, OrphanedCost
from fleetctl.core.preemption import NOTHING_PREEMPTIBLE, Preemptible, preemptible
from fleetctl.core.shares import free_rooms, rooms_coming
from fleetctl.model.catalogue import Market, OfferingKey
from fleetctl.model.profile import CapacitySpec, LaneSpec
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
    preempts_as: str = ""  # its place among what may be preempted (GpuPool.preemptible); empty: it waits for free GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPool:
    """GPUs of one machine, or of one cluster, that replicas take from."""

    gpu: str
    there: int
    left: int  # negative where more are taken than the plan in force knows of, or ordered ahead of what is preempted
    leaving: int = 0  # of those taken, that will be free soon
    preemptible: Mapping[str, Preemptible] = field(default_factory=dict)  # by ReplicaNeed.preempts_as
    of_cluster: bool = False
    taken: Mapping[str, int] = field(default_factory=dict)  # by lane, where several have some

    def refusal(self, need: ReplicaNeed) -> str:
        """Return why another replica may not be had, or an empty string."""
        if need.gpus <= self.left + self.preempted(need).gpus:
            return ""
        free = "none" if self.left < 1 else str(self.left)
        whose = "cluster" if self.of_cluster else "machine"
        holders = ", ".join(f"{lane} {count}" for lane, count in self.taken.items())
        return (
            f"of the {whose}'s {self.there} {self.gpu} {free} {'is' if self.left == 1 else 'are'} free"
            f"{f' ({holders})' if holders else ''}, and a replica takes {need.gpus}"
        )

    def preempted(self, need: ReplicaNeed) -> Preemptible:
        """Return what makes room for another replica where too few GPUs are free; nothing where it takes free ones."""
        return (
            self.preemptible.get(need.preempts_as, NOTHING_PREEMPTIBLE)
            if need.gpus > self.left
            else NOTHING_PREEMPTIBLE
        )


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
        return pool.refusal(need) if pool is not None else ""

    def preemption_note(self, need: ReplicaNeed) -> str:
        """Return whose replica makes room for one that may be had; empty: it takes what is free."""
        pool = self.pools.get(need.pool)
        lanes = pool.preempted(need).lanes if pool is not None else ()
        return f"no GPU is free, a replica of {' or '.join(lanes)} is preempted for it" if lanes else ""

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


def need_of(plan: LanePlan, market: Market, *, preempts: bool = False) -> ReplicaNeed:
    """Return what the plan reckons with for one replica of this market, which may have others make room for it."""
    offering = _offering_of(plan, market)
    return ReplicaNeed(
        price_usd_per_hour=offering.price_usd_per_hour * plan.node_count,
        nodes=plan.node_count,
        pool=_pool_of(offering),
        gpus=plan.gpus_each_node if offering.pool_gpus is not None else 0,
        lane=f"{plan.lane}/{offering.market}" if plan.replicas_each_machine > 1 else "",
        each_machine=plan.replicas_each_machine,
        preempts_as=_preempts_as(plan.lane, market) if preempts else "",
    )


def _offering_of(plan: LanePlan, market: Market) -> Offering:
    return plan.spot_offering if market is Market.SPOT and plan.spot_offering else plan.offering


def headroom_left(  # noqa: PLR0913  # what the caps are held against, each named
    capacity: CapacitySpec,
    steps: Iterable[ReplicaStep],
    *,
    lanes: Iterable[LanePlan] = (),
    specs: Sequence[LaneSpec] = (),
    orphaned: OrphanedCost = NONE_ORPHANED,
    digests: Mapping[str, str] = MappingProxyType({}),
    offerings: Iterable[Offering] = (),
) -> Headroom:
    """Return what the caps leave once every death that was just seen is recorded, and the machine that `lanes` are on.

    Orphaned nodes are paid for until they have ended, and one that cannot be stopped may stay for long. `digests` are by
    lane what its replicas are started with now: only such share a machine. `specs` are the profile's lanes in its order,
    by which some make room for others. `offerings` are sold now: GPUs that have come since the plan are there too.
    """
    there = [o for o in steps if o.is_settled or o.state.is_live]
    living = [o.replica.record for o in there]
    staying = [o.replica.record for o in there if o.is_settled or o.state not in _LEAVING]
    all_stay = len(staying) == len(living)
    machines, living_usd = machine_count(living), sum([record.price_usd_per_hour for record in living])
    staying_usd = living_usd if all_stay else sum([record.price_usd_per_hour for record in staying])
    cap = capacity.max_cost_usd_per_hour
    spent = living_usd + orphaned.total_usd_per_hour
    lane_plans = tuple(lanes)
    shared = [
        (need_of(plan, market).lane, plan, market, digests.get(plan.lane, ""))
        for plan in lane_plans
        if plan.replicas_each_machine > 1
        for market in Market
    ]
    return Headroom(
        nodes=capacity.max_nodes - machines - orphaned.machines,
        usd_per_hour=None if cap is None else cap - spent,
        capacity=capacity,
        leaving_nodes=machines - (machines if all_stay else machine_count(staying)) + orphaned.machines,
        leaving_usd_per_hour=spent - staying_usd - orphaned.head_usd_per_hour,
        pools=_pools(lane_plans, specs, living, staying, offerings),
        rooms={name: free_rooms(plan, living, market, digest) for name, plan, market, digest in shared},
        rooms_coming={name: rooms_coming(plan, living, market, digest) for name, plan, market, digest in shared},
    )


def _with_fewer(rooms: Mapping[str, int], lane: str) -> dict[str, int]:
    return {**rooms, lane: rooms[lane] - 1}


def _pools(
    lanes: tuple[LanePlan, ...],
    specs: Sequence[LaneSpec],
    living: Sequence[Replica],
    staying: Sequence[Replica],
    offerings: Iterable[Offering],
) -> dict[str, GpuPool]:
    """Return the GPUs of the machine that these lanes are planned on, by kind. Other fleets on it are not seen."""
    planned = {lane.lane: lane for lane in lanes}
    present = _present(offerings) if any(lane.offering.pool_gpus is not None for lane in lanes) else {}
    pools: dict[str, GpuPool] = {}
    for offering in (lane.offering for lane in lanes):
        if offering.pool_gpus is None or _pool_of(offering) in pools:
            continue
        # Those that take nothing new are sold no more, while our replicas on them still count as taking some: the plan's
        # number stands then, and an order that finds no room says so.
        most = max(offering.pool_gpus, present.get(_pool_of(offering), 0))
        held = {r.id: _gpus_of(r, planned) for r in living if _is_from(r, offering)}
        kept = {r.id: held[r.id] for r in staying if r.id in held}
        left = most - sum(held.values())
        is_full = left < max(lane.gpus_each_node for lane in lanes)
        by_lane: Counter[str] = Counter()
        for record in living:
            by_lane[record.lane] += held.get(record.id, 0)
        pools[_pool_of(offering)] = GpuPool(
            gpu=offering.gpu,
            there=most,
            left=left,
            leaving=sum(held.values()) - sum(kept.values()),
            preemptible=_preemptible(offering, planned, specs, staying, kept)
            if offering.is_preemptive and is_full
            else {},
            of_cluster=offering.is_pool_of_all_zones,
            taken={lane: count for lane, count in by_lane.items() if count} if len(lanes) > 1 else {},
        )
    return pools


def _present(offerings: Iterable[Offering]) -> dict[str, int]:
    """Return how many GPUs each pool has as it is sold now."""
    found: dict[str, int] = {}
    for each in offerings:
        if each.pool_gpus is not None:
            found[_pool_of(each)] = max(each.pool_gpus, found.get(_pool_of(each), 0))
    return found


def _is_from(record: Replica, offering: Offering) -> bool:
    return record.gpu == offering.gpu and (offering.is_pool_of_all_zones or _zone_of(record) == offering.zone)


def _zone_of(record: Replica) -> str:
    return OfferingKey.parse(record.offering).zone


def _gpus_of(record: Replica, planned: Mapping[str, LanePlan]) -> int:
    # One that is still ordered has none pinned yet, and will have what its lane's are planned with.
    return len(record.gpu_indices) or (planned[record.lane].gpus_each_node if record.lane in planned else 1)


def _preemptible(
    offering: Offering,
    planned: Mapping[str, LanePlan],
    specs: Sequence[LaneSpec],
    staying: Sequence[Replica],
    kept: Mapping[str, int],
) -> dict[str, Preemptible]:
    """Return what is preempted for the next replica of each lane on this pool, by its market: a node is of one market and zone."""
    found: dict[str, Preemptible] = {}
    for spec in specs:
        plan = planned.get(spec.name)
        if plan is None or _pool_of(plan.offering) != _pool_of(offering):
            continue
        for market in Market:
            zone = _offering_of(plan, market).zone  # nobody makes room from another
            held = {r.id: kept[r.id] for r in staying if r.id in kept and r.market is market and _zone_of(r) == zone}
            there = preemptible(spec, specs, staying, held=held, gpus=plan.gpus_each_node)
            if there.gpus:
                found[_preempts_as(spec.name, market)] = there
    return found


def _preempts_as(lane: str, market: Market) -> str:
    return f"{lane}/{market}"


def _pool_of(offering: Offering) -> str:
    if offering.pool_gpus is None:
        return ""
    return f"/{offering.gpu}" if offering.is_pool_of_all_zones else f"{offering.zone}/{offering.gpu}"

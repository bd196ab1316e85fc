"""One of several gateways: its part of every limit, and what it has of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from fleetctl.model.allotment import (
    NO_OTHERS,
    Allotment,
    GatewayHoldings,
    LaneAllotment,
    LaneHoldings,
    ReplicaAllotment,
    ReplicaHoldings,
    TierLoad,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.replica import DispatchReplica
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.dispatch.routes import RoutingState

# What is counted a second is counted over about this time.
_MEMORY_S: Final = 1.0
# What others had at an engine so long ago has been computed, or is not known any more.
_OTHERS_S: Final = 2.0


class _Rate:
    """Counts a second of what only grows, lately."""

    __slots__ = ("_at_s", "_count", "per_s")

    def __init__(self) -> None:
        self._at_s = -1.0
        self._count = 0
        self.per_s = 0.0

    def read(self, count: int, now_s: float) -> float:
        elapsed_s = now_s - self._at_s
        if self._at_s >= 0.0 and elapsed_s <= 0.0:
            return self.per_s
        if self._at_s >= 0.0:
            newest = 1.0 - math.exp(-elapsed_s / _MEMORY_S)
            self.per_s += newest * (max(0, count - self._count) / elapsed_s - self.per_s)
        self._at_s, self._count = now_s, count
        return self.per_s


class Sharing:
    """Takes one allotment after another. Until the first, or after one that says so, everything is this gateway's."""

    def __init__(self, routes: RoutingState, dispatch_queued: Callable[[DispatchLane[ActiveRequest]], None]) -> None:
        self._routes = routes
        self._dispatch_queued = dispatch_queued
        self._allotment: Allotment | None = None
        self._taken_s = 0.0
        self.is_beside = False  # others hold the limits too
        self._epoch = 0  # of the newest controller that has asked
        self._rates: dict[str, _Rate] = {}

    @property
    def order(self) -> tuple[int, int]:
        """What the allotment at work is known by."""
        return self._allotment.order if self._allotment is not None else (0, 0)

    @property
    def epoch(self) -> int:
        """Of the newest controller that has asked; 0: none has."""
        return self._epoch

    @property
    def awaits_part(self) -> bool:
        """Whether it is to be one of several, and has no part of anything yet."""
        allotment = self._allotment
        if not self.is_beside:
            return False
        return allotment is None or not any(
            [*(each.slots for each in allotment.replicas), *(each.places for each in allotment.lanes)]
        )

    @property
    def _has_no_part(self) -> bool:
        return self.is_beside and self._allotment is None

    def begin_beside(self) -> None:
        """Have nothing until the first allotment: others may have it all."""
        self.is_beside = True

    def take(self, allotment: Allotment, now_s: float) -> bool:
        """Work by this one from now on, and give those who wait what there is more; False: it is older than the one at work."""
        if allotment.order < self.order or allotment.epoch < self._epoch:
            return False
        self._epoch = allotment.epoch
        self._allotment, self._taken_s, self.is_beside = allotment, now_s, not allotment.is_alone
        self.apply(now_s)
        for lane in list(self._routes.lanes.values()):
            if lane.has_queued:
                self._dispatch_queued(lane)
        return True

    def apply(self, now_s: float) -> None:
        """Hold the table's lanes and replicas, new ones too, to what is allotted."""
        allotment = self._allotment
        if allotment is None and not self.is_beside:
            return
        is_alone = allotment is not None and allotment.is_alone
        replicas = {each.id: each for each in allotment.replicas} if allotment is not None else {}
        for name, replica in self._routes.replicas.items():
            _allot_replica(
                replica, None if is_alone else replicas.get(name) or ReplicaAllotment(id=name, slots=0), now_s
            )
        lanes = {each.name: each for each in allotment.lanes} if allotment is not None else {}
        for name, lane in self._routes.lanes.items():
            _allot_lane(lane, None if is_alone else lanes.get(name) or LaneAllotment(name=name, places=0), now_s)

    def sweep(self, now_s: float) -> None:
        """Forget what others had, where nothing has been heard of them for long."""
        if self.is_beside and self._taken_s and now_s - self._taken_s > _OTHERS_S:
            self._taken_s = 0.0
            for replica in self._routes.replicas.values():
                _allot_replica(replica, ReplicaAllotment(id=replica.route.id, slots=replica.slots or 0), now_s)

    def fence(self, epoch: int) -> None:
        """Take nothing of an older controller any more: one of this epoch stands on what it is told now."""
        self._epoch = max(self._epoch, epoch)

    def holdings(self, pid: int, now_s: float) -> GatewayHoldings:
        """Return what this gateway has now."""
        epoch, seq = self.order
        lanes, replicas = self._routes.lanes, self._routes.replicas
        self._rates = {name: self._rates.get(name) or _Rate() for name in lanes}
        return GatewayHoldings(
            pid=pid,
            epoch=epoch,
            seq=seq,
            replicas=(*(self._replica(replica, now_s) for replica in replicas.values()), *self._replicas_to_come()),
            lanes=(*(self._lane(lane, now_s) for lane in lanes.values()), *self._lanes_to_come()),
        )

    def _replicas_to_come(self) -> Iterator[ReplicaHoldings]:
        """Yield those it has a part of and its table does not name: the next one will."""
        for each in self._allotment.replicas if self._allotment is not None else ():
            if each.id not in self._routes.replicas:
                yield ReplicaHoldings(id=each.id, slots=each.slots, may_probe=each.may_probe)

    def _lanes_to_come(self) -> Iterator[LaneHoldings]:
        for each in self._allotment.lanes if self._allotment is not None else ():
            if each.name not in self._routes.lanes:
                yield LaneHoldings(name=each.name, places=each.places, may_probe=each.may_probe)

    def _replica(self, replica: DispatchReplica, now_s: float) -> ReplicaHoldings:
        candidate, others, name = replica.candidate, replica.others, replica.route.id
        is_out = candidate.ejected_until_s > 0.0
        return ReplicaHoldings(
            id=name,
            slots=0 if self._has_no_part else replica.slots,
            streams=candidate.in_flight,
            streams_max=0 if replica.streams_max >= replica.route.concurrency_max else replica.streams_max,
            prompts=max(0, candidate.line.count - others.prompts),
            prompt_tokens=candidate.prefill_tokens,
            kv_held=candidate.kv.held_tokens,
            kv_most=candidate.kv.most_tokens,
            prompts_done=replica.prompts_done,
            prompt_tokens_done=replica.prompt_tokens_done,
            may_probe=candidate.may_probe,
            wants_probe=is_out and candidate.ejected_until_s <= now_s and not candidate.in_flight,
            is_probing=is_out and candidate.may_probe and candidate.in_flight > 0,
        )

    def _lane(self, lane: DispatchLane[ActiveRequest], now_s: float) -> LaneHoldings:
        demand, tiers = lane.demand, lane.tiers
        return LaneHoldings(
            name=lane.route.name,
            places=0 if self._has_no_part else lane.places,
            queued=max(lane.queue.size, lane.late.size),
            waiting=lane.queue.size + lane.late.size + lane.displaced.size,
            arrivals_per_s=self._rates[lane.route.name].read(lane.arrivals, now_s),
            may_probe=lane.probe.is_ours,
            prefill_load=demand.load_at(now_s),
            is_pressed=demand.is_pressed_itself(now_s),
            tiers=tuple(
                TierLoad(
                    name=tier.spec.name,
                    served=tier.served.own_at(now_s),
                    arrivals=tier.arrivals.own_at(now_s),
                    taken=tier.taken.own_at(now_s),
                    work=tier.work.own_at(now_s),
                )
                for tier in (tiers.all if tiers is not None else ())
            ),
        )


def _allot_replica(replica: DispatchReplica, allotted: ReplicaAllotment | None, now_s: float) -> None:
    """Take over this gateway's part of it, and what the others have there; None: it is this gateway's alone."""
    candidate = replica.candidate
    replica.slots = allotted.slots if allotted is not None else None
    replica.others = others = allotted.others if allotted is not None else NO_OTHERS
    candidate.may_probe = allotted is None or allotted.may_probe
    candidate.line.note_others(others, now_s, prompts_done=replica.prompts_done, tokens_done=replica.prompt_tokens_done)
    candidate.line.carries(candidate.in_flight)
    candidate.kv.note_others(others.kv_held, others.kv_most)
    replica.show_limit()


def _allot_lane(lane: DispatchLane[ActiveRequest], allotted: LaneAllotment | None, now_s: float) -> None:
    lane.allot(allotted.places if allotted is not None else None)
    lane.probe.allot(now_s, is_ours=allotted is None or allotted.may_probe)
    lane.demand.note_others(
        allotted.prefill_load if allotted is not None else 0.0,
        now_s,
        is_pressed=allotted is not None and allotted.is_pressed,
    )
    if lane.tiers is None:
        return
    loads = {each.name: each for each in allotted.tiers} if allotted is not None else {}
    for tier in lane.tiers.all:
        load = loads.get(tier.spec.name) or TierLoad(name=tier.spec.name)
        tier.served.note_others(load.served, now_s)
        tier.arrivals.note_others(load.arrivals, now_s)
        tier.taken.note_others(load.taken, now_s)
        tier.work.note_others(load.work, now_s)
        if load.arrivals >= 1.0:
            tier.arrived_s = max(tier.arrived_s, now_s)

"""The rules to compare with, from their published descriptions: SpotHedge, and acting on every notice at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetctl.model.catalogue import Market
from tests.bench.policies.spot_world import ON_DEMAND_ZONE, SpotNode, SpotWorld


@dataclass(slots=True)
class SpotHedge:
    """The rule of SkyServe: so many spot replicas more than wanted, on demand for what of them is not ready.

    A zone that lost or refused one is preempted until fewer than two are active; then all are active again. It knows
    nothing of notices, so its replicas serve until they are taken.
    """

    world: SpotWorld
    wanted: int
    extra: int = 1
    period_s: float = 20.0
    preempted: set[str] = field(default_factory=set)
    known: set[int] = field(default_factory=set)

    def tick(self) -> float:
        """Decide; return when to decide again."""
        world = self.world
        for number in sorted(self.known):
            node = world.nodes[number]
            if node.is_over:
                self.known.discard(number)
                self.preempted.add(node.zone)
        spot = [n for n in world.living() if n.market is Market.SPOT]
        for _ in range(self.wanted + self.extra - len(spot)):
            launched = self._launch_spot()
            if launched is None:
                break
            self.known.add(launched.id)
        self._fall_back()
        return world.now_s + self.period_s

    def ready(self) -> int:
        return sum(n.up_s <= self.world.now_s for n in self.world.living())

    def _launch_spot(self) -> SpotNode | None:
        world, zones = self.world, sorted(self.world.trace.changes)
        if len([z for z in zones if z not in self.preempted]) < min(2, len(zones)):
            self.preempted.clear()
        held = [n.zone for n in world.living() if n.market is Market.SPOT]
        for zone in sorted((z for z in zones if z not in self.preempted), key=lambda z: (held.count(z), z)):
            node = world.create(zone, Market.SPOT)
            if node is not None:
                return node
            self.preempted.add(zone)
        return None

    def _fall_back(self) -> None:
        world = self.world
        spot_ready = sum(n.up_s <= world.now_s for n in world.living() if n.market is Market.SPOT)
        due = min(self.wanted, max(0, self.wanted + self.extra - spot_ready))
        on_demand = [n for n in world.living() if n.market is Market.ON_DEMAND]
        for _ in range(due - len(on_demand)):
            world.create(ON_DEMAND_ZONE, Market.ON_DEMAND)
        for node in on_demand[due:]:
            world.stop(node)


@dataclass(slots=True)
class OnNotice:
    """The rule without spares: a substitute is ordered at the notice, on spot where a zone has stock, else on demand.

    An on-demand replica is exchanged as soon as spot can be had. Replicas leave `leaves_s` before their node's end.
    """

    world: SpotWorld
    wanted: int
    leaves_s: float = 35.0
    period_s: float = 20.0
    _exchanged: dict[int, int] = field(default_factory=dict)  # spot node -> the on-demand one that it replaces

    def tick(self) -> float:
        """Decide; return when to decide again."""
        world = self.world
        staying = [n for n in world.living() if n.noticed_s is None]
        new = [n for n in staying if n.id not in self._exchanged]
        for _ in range(self.wanted - len(new)):
            if self._spot() is None:
                world.create(ON_DEMAND_ZONE, Market.ON_DEMAND)
        self._exchange()
        leaving = [n.ends_s - self.leaves_s for n in world.living() if n.noticed_s is not None]
        return min([world.now_s + self.period_s, *(at_s for at_s in leaving if at_s > world.now_s)])

    def ready(self) -> int:
        now_s = self.world.now_s
        return sum(
            n.up_s <= now_s and (n.noticed_s is None or n.ends_s - now_s > self.leaves_s) for n in self.world.living()
        )

    def _spot(self) -> SpotNode | None:
        world, held = self.world, [n.zone for n in self.world.living()]
        for zone in sorted(world.trace.changes, key=lambda z: (held.count(z), z)):
            if world.trace.stock(zone, world.now_s) > 0 and (node := world.create(zone, Market.SPOT)) is not None:
                return node
        return None

    def _exchange(self) -> None:
        world = self.world
        for new, old in list(self._exchanged.items()):
            node, replaced = world.nodes[new], world.nodes[old]
            if node.is_over or node.noticed_s is not None or node.up_s <= world.now_s or replaced.is_over:
                del self._exchanged[new]
                if node.up_s <= world.now_s and not node.is_over and node.noticed_s is None:
                    world.stop(replaced)
        waiting = set(self._exchanged.values())
        for kept in [n for n in world.living() if n.market is Market.ON_DEMAND and n.id not in waiting]:
            if kept.up_s <= world.now_s and (created := self._spot()) is not None:
                self._exchanged[created.id] = kept.id

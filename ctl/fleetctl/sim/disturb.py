"""Makes a simulation's disturbances happen."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import Market
from fleetctl.model.replica import ReplicaState
from fleetctl.sim.scenario import Disturbance, DisturbanceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fleetctl.sim.controller import SimulatedController
    from fleetctl.sim.event_heap import EventHeap
    from fleetctl.sim.nodes import SimulatedNode
    from fleetctl.sim.observer import SimulatedObserver
    from fleetctl.sim.provider import SimulatedProvider


class Disturber:
    """Makes disturbances happen, and end."""

    def __init__(
        self,
        heap: EventHeap,
        *,
        controller: SimulatedController,
        observer: SimulatedObserver,
        provider: SimulatedProvider,
    ) -> None:
        self._heap = heap
        self._controller = controller
        self._observer = observer
        self._provider = provider

    def expect(self, disturbances: Iterable[Disturbance]) -> None:
        """Let them come at their times."""
        for each in disturbances:
            self._heap.at(each.at_s, partial(self._begin, each))

    def _begin(self, disturbance: Disturbance) -> None:
        now_s = self._heap.now_s
        match disturbance.kind:
            case DisturbanceKind.NO_NODES:
                self._provider.delivers = False
                self._later(disturbance, self._deliver)
            case DisturbanceKind.NO_ENGINE_METRICS:
                self._observer.reads_engines = False
                self._later(disturbance, self._read_engines)
            case DisturbanceKind.STALE_GATEWAY:
                self._observer.reads_gateway = False
                self._later(disturbance, self._read_gateway)
            case _:
                for node in self._victims(disturbance):
                    self._hit(disturbance, node, now_s)

    def _hit(self, disturbance: Disturbance, node: SimulatedNode, now_s: float) -> None:
        match disturbance.kind:
            case DisturbanceKind.KILL:
                self._controller.end(node, "signal 9")
            case DisturbanceKind.TAKE:
                self._controller.end(node, "interrupted")
            case DisturbanceKind.NOTICE:
                self._provider.announce(node, now_s, disturbance.factor)
            case DisturbanceKind.SLOW:
                node.engine.slow_down(disturbance.factor)
                self._later(disturbance, partial(node.engine.slow_down, 1.0))
            case _:
                node.engine.hang()
                self._later(disturbance, node.engine.go_on)

    def _victims(self, disturbance: Disturbance) -> list[SimulatedNode]:
        """Return the nodes that are hit: of the oldest replicas in rotation."""
        found = [
            self._provider.nodes[record.id]
            for record in self._controller.records.values()
            if record.state is ReplicaState.READY
            and (not disturbance.lane or record.lane == disturbance.lane)
            and (record.market is Market.SPOT or not disturbance.spot_only)
        ]
        return [node for node in found if not node.ended][: disturbance.count]

    def _later(self, disturbance: Disturbance, call: Callable[[], None]) -> None:
        if disturbance.for_s < math.inf:
            self._heap.at(disturbance.at_s + disturbance.for_s, call)

    def _deliver(self) -> None:
        self._provider.delivers = True

    def _read_engines(self) -> None:
        self._observer.reads_engines = True

    def _read_gateway(self) -> None:
        self._observer.reads_gateway = True

"""Orders, listings and interruptions of a simulated fleet."""

from __future__ import annotations

import math
from collections import Counter
from datetime import timedelta
from itertools import cycle
from typing import TYPE_CHECKING

from fleetctl.core.placement import ranked_offerings
from fleetctl.model.catalogue import Market
from fleetctl.sim.nodes import SimulatedNode, SpotMarket, boot_time_s

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from datetime import datetime

    from fleetctl.core.hazard import Hazards
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.decision import LaunchReplica
    from fleetctl.model.desired import Desired
    from fleetctl.model.replica import Replica
    from fleetctl.sim.engine import SimulatedEngine
    from fleetctl.sim.ranks import SimulatedRanks
    from fleetctl.sim.scenario import SimulationSpec

# What had no stock is left alone for this long, as the controller does.
_UNOBTAINABLE_S = 180.0
# Between an engine's order to end and its end, with nothing in flight.
_STOP_S = 1.0


class SimulatedProvider:
    """Sells every offering it is given: on-demand always, spot while its zone has any for us."""

    def __init__(self, spec: SimulationSpec, offerings: tuple[Offering, ...], dice: random.Random) -> None:
        self.spec = spec
        self.offerings = offerings
        self.spot = SpotMarket(spec.spot)
        self.nodes: dict[str, SimulatedNode] = {}  # by replica; those that have ended leave once it is recorded
        self.delivers = True  # False: what is ordered never becomes ready
        self._by_key = {offering.key: offering for offering in offerings}
        self._dice = dice
        self._boots = {lane: cycle(boots_s) for lane, boots_s in spec.boots_s.items() if boots_s}
        self._refused_at: dict[str, datetime] = {}  # by Offering.key
        self._changes_s = sorted({row.at_s for row in spec.spot})
        self._next_change = 0

    def choose(
        self, desired: Desired, action: LaunchReplica, standing: Sequence[Replica], hazards: Hazards
    ) -> Offering | None:
        """Return where the next replica goes, as the controller's launches do."""
        ranking = ranked_offerings(
            desired.plan.lane(action.lane),
            standing,
            action.market,
            self.offerings,
            capacity=desired.profile.capacity,
            avoid=frozenset(self.refused(hazards.now)),
            hazards=hazards,
            may_fall_back=action.may_fall_back,
            most=1,
            late=frozenset(action.late),
        )
        return next(iter(ranking.offerings), None)

    def refused(self, now: datetime) -> dict[str, datetime]:
        """Return when each offering that is left alone now had no stock."""
        lately = now - timedelta(seconds=_UNOBTAINABLE_S)
        self._refused_at = {key: at for key, at in self._refused_at.items() if at > lately}
        return dict(self._refused_at)

    def create(
        self,
        record: Replica,
        engine: SimulatedEngine | SimulatedRanks,
        now_s: float,
        now: datetime,
        *,
        startup_s: float = 0.0,
    ) -> SimulatedNode | None:
        """Return the node of an order; None: its zone has none left, and is left alone for a while.

        `startup_s` is the engine's own start, after the node's; a given `boot_s` is both.
        """
        if record.market is Market.SPOT and self._held(record.zone) >= self.spot.available(record.zone, now_s):
            self._refused_at[record.offering] = now
            return None
        requested_s = now_s - self.spec.create_s
        boot_s = self._boot_s(record, startup_s) if self.delivers else math.inf
        healthy_s = max(now_s, requested_s + boot_s)
        node = self.nodes[record.id] = SimulatedNode(
            record, requested_s=requested_s, healthy_s=healthy_s, engine=engine
        )
        return node

    def _boot_s(self, record: Replica, startup_s: float) -> float:
        given = self._boots.get(record.lane)
        if given is not None:
            return next(given)
        boot_s = boot_time_s(self.spec, self._by_key[record.offering], self._dice)
        return boot_s if self.spec.boot_s is not None else boot_s + startup_s

    def interrupt(self, now_s: float) -> list[SimulatedNode]:
        """Announce that nodes are taken where zones have fewer now than are held; return those that end now."""
        while self._next_change < len(self._changes_s) and self._changes_s[self._next_change] <= now_s:
            self._next_change += 1
            self._announce(now_s)
        return [node for node in self.nodes.values() if not node.ended and now_s >= node.taken_s]

    def announce(self, node: SimulatedNode, now_s: float, notice_s: float) -> None:
        """Say that a node will be taken."""
        node.notice_s, node.taken_s = now_s, now_s + notice_s

    def stop(self, node: SimulatedNode, now_s: float, grace_s: float) -> None:
        """Take the order to end a node."""
        node.taken_s = min(node.taken_s, now_s + min(grace_s, _STOP_S))
        node.exit_reason = node.exit_reason or "exit 0"

    def _held(self, zone: str) -> int:
        return sum(
            node.market is Market.SPOT and node.zone == zone and not node.ended and node.taken_s == math.inf
            for node in self.nodes.values()
        )

    def _announce(self, now_s: float) -> None:
        """Take the latest first where there are too many, as nothing says which a provider takes."""
        held = Counter(
            node.zone
            for node in self.nodes.values()
            if node.market is Market.SPOT and not node.ended and node.taken_s == math.inf
        )
        for node in reversed(list(self.nodes.values())):
            if node.market is not Market.SPOT or node.ended or node.taken_s < math.inf:
                continue
            if held[node.zone] > self.spot.available(node.zone, now_s):
                held[node.zone] -= 1
                notice_s = self.spec.notice_s
                if notice_s is None:
                    notice_s = next((o.notice_s for o in self.offerings if o.market is Market.SPOT), 0.0)
                self.announce(node, now_s, notice_s)

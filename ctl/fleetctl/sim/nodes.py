"""The nodes of a simulated provider: ordered, booting, taken; spot ones while their zone has them."""

from __future__ import annotations

import math
from bisect import bisect_right
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import OfferingKey
from fleetctl.model.node import Node, NodeState, Notice, NoticeKind

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.config.spot_trace import SpotRow
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.replica import Replica
    from fleetctl.sim.engine import SimulatedEngine
    from fleetctl.sim.ranks import SimulatedRanks
    from fleetctl.sim.scenario import SimulationSpec


class SimulatedNode:
    """The truth about one node; times are virtual seconds, infinity is never."""

    __slots__ = (
        "ended",
        "engine",
        "exit_reason",
        "healthy_s",
        "id",
        "market",
        "notice_s",
        "price_usd_per_hour",
        "replica_id",
        "requested_s",
        "taken_s",
        "warm_done_s",
        "zone",
    )  # fmt: skip

    def __init__(
        self, record: Replica, *, requested_s: float, healthy_s: float, engine: SimulatedEngine | SimulatedRanks
    ) -> None:
        self.id = f"node-{record.id}"
        self.replica_id = record.id
        self.market = record.market
        self.zone = OfferingKey.parse(record.offering).zone
        self.price_usd_per_hour = record.price_usd_per_hour
        self.requested_s = requested_s
        self.healthy_s = healthy_s
        self.engine = engine
        self.ended = False
        self.exit_reason = ""
        self.notice_s = math.inf  # when it was said that it will be taken
        self.taken_s = math.inf
        self.warm_done_s: float | None = None

    def is_healthy(self, now_s: float) -> bool:
        """Return whether its engine answers its health route."""
        return not self.ended and now_s >= self.healthy_s

    def is_quiet(self, now_s: float) -> bool:
        """Return whether it runs, its engine answers its health route, and nothing is said of its end: so it is with nearly all."""
        return self.healthy_s <= now_s < self.notice_s and not self.ended

    def state(self, now_s: float) -> NodeState:
        """Return what the provider says of it."""
        if self.ended:
            return NodeState.GONE
        return NodeState.RUNNING if now_s >= self.healthy_s else NodeState.STARTING

    def notice(self, now_s: float, epoch: datetime) -> Notice | None:
        """Return the provider's warning, once it has been given."""
        if now_s < self.notice_s or self.ended:
            return None
        deadline = epoch + timedelta(seconds=self.taken_s)
        return Notice(kind=NoticeKind.INTERRUPTION, deadline=deadline, is_certain=True)

    def listed(self, record: Replica, now_s: float, created_at: datetime) -> Node:
        """Return it as a listing shows it."""
        return Node(
            id=self.id,
            token=self.id,
            owner="simulation",
            fleet=record.fleet,
            replica_id=self.replica_id,
            state=self.state(now_s),
            market=self.market,
            host="127.0.0.1",
            port=1,
            created_at=created_at,
            exit_reason=self.exit_reason,
        )


class SpotMarket:
    """How many spot nodes each zone has for us, over time."""

    def __init__(self, rows: Iterable[SpotRow]) -> None:
        self._times_s: dict[str, list[float]] = {}
        self._available: dict[str, list[int]] = {}
        for row in rows:
            self._times_s.setdefault(row.zone, []).append(row.at_s)
            self._available.setdefault(row.zone, []).append(row.available)

    @property
    def zones(self) -> tuple[str, ...]:
        """Return the zones that are known; none: spot is always there."""
        return tuple(sorted(self._times_s))

    def available(self, zone: str, now_s: float) -> float:
        """Return how many nodes a zone has for us now; infinite where nothing is known of it."""
        times_s = self._times_s.get(zone)
        if times_s is None:
            return math.inf
        index = bisect_right(times_s, now_s) - 1
        return self._available[zone][index] if index >= 0 else 0


def boot_time_s(spec: SimulationSpec, offering: Offering, dice: random.Random) -> float:
    """Return how long a node takes from its order to a healthy engine."""
    planned_s = offering.boot_s if spec.boot_s is None else spec.boot_s
    return planned_s * (1.0 + spec.boot_spread * (2.0 * dice.random() - 1.0))

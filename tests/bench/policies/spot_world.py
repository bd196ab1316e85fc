"""A spot market replayed from a trace: zones with stock, nodes that boot, are noticed, are taken, and cost money."""

from __future__ import annotations

import csv
import gzip
import itertools
import math
import random
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import Market

if TYPE_CHECKING:
    from pathlib import Path

DAY_S = 86_400.0
ON_DEMAND_PRICE = 3.0
SPOT_PRICE = 1.0
ON_DEMAND_ZONE = "any"


@dataclass(frozen=True, slots=True)
class SpotTrace:
    """What each zone could give: the nodes it has stock for from an instant on."""

    name: str
    changes: dict[str, tuple[tuple[float, int], ...]]  # zone -> (seconds, nodes), in order
    end_s: float

    @property
    def is_pool(self) -> bool:
        """Whether its counts are those of a large pool, whose losses hit ours by chance."""
        return max(count for changes in self.changes.values() for _, count in changes) > 8

    def stock(self, zone: str, at_s: float) -> int:
        """Return the nodes a zone has stock for at an instant."""
        changes = self.changes[zone]
        index = bisect_right(changes, (at_s, math.inf)) - 1
        return changes[index][1] if index >= 0 else 0


def read_trace(path: Path) -> SpotTrace:
    """Read columns t_s, zone, available, a row per change; plain or gzipped."""
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    for row in csv.DictReader(text.splitlines()):
        changes[row["zone"]].append((float(row["t_s"]), int(float(row["available"]))))
    in_order = {zone: tuple(sorted(rows)) for zone, rows in sorted(changes.items())}
    end_s = max(rows[-1][0] for rows in in_order.values())
    return SpotTrace(name=path.name.split(".")[0], changes=in_order, end_s=end_s)


@dataclass(slots=True)
class SpotNode:
    """One node: what is known of it, and when it ends."""

    id: int
    zone: str
    market: Market
    created_s: float
    up_s: float  # its engine is healthy
    noticed_s: float | None = None
    ends_s: float = math.inf
    is_over: bool = False

    @property
    def price(self) -> float:
        return SPOT_PRICE if self.market is Market.SPOT else ON_DEMAND_PRICE


@dataclass(slots=True)
class SpotWorld:
    """One window of a trace. `lost` is the share of notices that never come."""

    trace: SpotTrace
    start_s: float
    boot_s: float
    notice_s: float
    lost: float
    seed: int
    now_s: float = 0.0  # of the trace
    nodes: dict[int, SpotNode] = field(default_factory=dict)
    cost: float = 0.0
    losses: int = 0
    unannounced: int = 0
    refusals: int = 0
    chance: random.Random = field(init=False)
    _changes: list[tuple[float, str, int, int]] = field(init=False)  # seconds, zone, before, after

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.now_s = self.start_s
        found = [
            (at_s, zone, before, after)
            for zone, rows in self.trace.changes.items()
            for (_, before), (at_s, after) in itertools.pairwise(rows)
            if at_s > self.start_s
        ]
        self._changes = sorted(found)

    def living(self) -> list[SpotNode]:
        return [node for node in self.nodes.values() if not node.is_over]

    def next_event_s(self) -> float:
        """Return when something happens next without anybody's doing."""
        soonest = [self._changes[0][0]] if self._changes else []
        for node in self.living():
            soonest += [at_s for at_s in (node.up_s, node.ends_s) if at_s > self.now_s]
        return min(soonest, default=math.inf)

    def advance(self, to_s: float) -> None:
        """Let time pass: stock changes, nodes are noticed, taken and paid for."""
        for node in self.living():
            until_s = min(to_s, node.ends_s)
            self.cost += node.price * max(0.0, until_s - self.now_s) / 3600.0
        self.now_s = to_s
        while self._changes and self._changes[0][0] <= to_s:
            at_s, zone, before, after = self._changes.pop(0)
            self._take(at_s, zone, before, after)
        for node in self.living():
            node.is_over = node.ends_s <= to_s

    def _take(self, at_s: float, zone: str, before: int, after: int) -> None:
        held = [n for n in self.living() if n.zone == zone and n.market is Market.SPOT and n.noticed_s is None]
        held = [n for n in held if n.ends_s > at_s]
        if self.trace.is_pool:
            gone = self.chance.sample(range(before), max(0, before - after))
            victims = [held[i] for i in gone if i < len(held)]
        else:
            victims = self.chance.sample(held, min(len(held), max(0, len(held) - after)))
        for node in victims:
            self.losses += 1
            if self.chance.random() < self.lost:
                self.unannounced += 1
                node.ends_s = at_s
            else:
                node.noticed_s, node.ends_s = at_s, at_s + self.notice_s

    def create(self, zone: str, market: Market) -> SpotNode | None:
        """Order a node; None where the zone has no stock."""
        if market is Market.SPOT:
            held = [n for n in self.living() if n.zone == zone and n.market is Market.SPOT and n.noticed_s is None]
            if self.trace.stock(zone, self.now_s) - len(held) <= 0:
                self.refusals += 1
                return None
        boot_s = self.boot_s * self.chance.uniform(0.9, 1.1)
        number = len(self.nodes) + 1
        node = SpotNode(number, zone, market, self.now_s, self.now_s + boot_s)
        self.nodes[number] = node
        return node

    def stop(self, node: SpotNode) -> None:
        """End a node now."""
        node.ends_s = min(node.ends_s, self.now_s)
        node.is_over = True

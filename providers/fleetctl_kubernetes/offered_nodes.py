"""When what a cluster offers changes: machines that come and go, are cordoned or not, or have another number of GPUs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.catalogue import kubernetes_nodes
from fleetctl_kubernetes.informer import Listed
from fleetctl_kubernetes.node_gpus import gpus_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleetctl.model.catalogue import Market
    from fleetctl_kubernetes.informer import Changed

Object = dict[str, Any]
_PLACE = (kubernetes_nodes.REGION, kubernetes_nodes.ZONE)


class _Offered(NamedTuple):
    """What of a machine an offering follows from."""

    gpus: int  # none of one that leaves, or takes no replica
    product: str
    market: Market
    place: tuple[str | None, ...]


@dataclass(slots=True)
class _Watcher:
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    grown: set[str] = field(default_factory=set)  # bounded by what the cluster has ever offered


class OfferedNodes:
    """Implements OfferingEvents by what the watch of a fleet's machines sees; a change is told to all that listen."""

    def __init__(self) -> None:
        self._offered: dict[str, _Offered] = {}  # by machine
        self._watchers: list[_Watcher] = []

    async def watch_offerings(self) -> AsyncIterator[frozenset[str]]:
        """Yield what has grown with each change, those that come while nobody waits together."""
        watcher = _Watcher()
        self._watchers.append(watcher)
        try:
            while True:
                await watcher.changed.wait()
                grown, watcher.grown = frozenset(watcher.grown), set()
                watcher.changed.clear()
                yield grown
        finally:
            self._watchers.remove(watcher)

    def take_in(self, new: Listed | Changed) -> None:
        """Take in what is new of machines; those that a listing lacks have gone unseen."""
        if not isinstance(new, Listed):
            self._take(new.kind, new.item)
            return
        there = {node["metadata"]["name"] for node in new.items}
        for name in self._offered.keys() - there:
            self._take("DELETED", {"metadata": {"name": name}})
        for node in new.items:
            self._take("MODIFIED", node)

    def _take(self, kind: str, node: Object) -> None:
        from fleetctl_kubernetes.offerings import offerings_of

        name = node["metadata"]["name"]
        before, now = self._offered.pop(name, None), _offered(node) if kind != "DELETED" else None
        if now is not None:
            self._offered[name] = now
        if before == now:
            return
        has_grown = now is not None and (before is None or _is_less(before, now))
        grown = {each.key for each in offerings_of((node,))} if has_grown else set[str]()
        for watcher in self._watchers:
            watcher.grown |= grown
            watcher.changed.set()


def _offered(node: Object) -> _Offered:
    labels, found = node["metadata"].get("labels") or {}, gpus_of(node)
    market, _ = kubernetes_nodes.market_of(labels)
    return _Offered(found.gpus, found.product, market, tuple(labels.get(name) for name in _PLACE))


def _is_less(before: _Offered, now: _Offered) -> bool:
    return before.gpus < now.gpus or before._replace(gpus=now.gpus) != now

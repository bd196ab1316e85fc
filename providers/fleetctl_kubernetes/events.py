"""Changes of a fleet's pods and of the machines they are on, as the API server tells of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ProviderError
from fleetctl_kubernetes.group_members import group_of
from fleetctl_kubernetes.informer import ForbiddenError, Informer, Listed
from fleetctl_kubernetes.notices import notice_of
from fleetctl_kubernetes.orders import gone_node, node_of
from fleetctl_kubernetes.records import ended_in
from fleetctl_kubernetes.settings import fleet_labels, selector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleetctl.clock import Clock
    from fleetctl.model.node import Node, Notice
    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.informer import Changed
    from fleetctl_kubernetes.records import FleetRecords

Object = dict[str, Any]
Event = tuple[str, Object]  # ADDED, MODIFIED or DELETED, and what
_CHANGES_MAX = 4096  # that wait to be taken in; a listing is one. Beyond them the watch breaks, and all is read anew
_NODES = "/api/v1/nodes"

_Queued = tuple[str, "Listed | Changed"] | ProviderError  # the path and what is new there; or why there is no more


class PodEvents:
    """Implements NodeEvents: one watch of a fleet's pods, and one of the cluster's nodes where these may be read."""

    def __init__(self, connection: ClusterConnection, records: FleetRecords, clock: Clock) -> None:
        self._connection = connection
        self._records = records
        self._clock = clock
        self._watched: set[tuple[str, str]] = set()

    def is_watching(self, owner: str, fleet: str) -> bool:
        """Whether this process has watched a fleet, as only its controller does."""
        return (owner, fleet) in self._watched

    async def watch(self, *, owner: str, fleet: str) -> AsyncIterator[Node]:
        """Yield pods as they change, and all pods of a machine of which something new is said."""
        self._watched.add((owner, fleet))
        queue: asyncio.Queue[_Queued] = asyncio.Queue(_CHANGES_MAX)
        namespace = await asyncio.to_thread(lambda: self._connection.namespace)
        of_fleet = {"labelSelector": selector(fleet_labels(owner, fleet))}
        pods = Informer(self._connection, f"/api/v1/namespaces/{namespace}/pods", of_fleet, self._clock)
        machines = Informer(self._connection, _NODES, {}, self._clock)
        tasks = [asyncio.create_task(_fill(queue, each)) for each in (pods, machines)]
        try:
            seen = SeenObjects()
            while True:
                found = await queue.get()
                if isinstance(found, ProviderError):
                    raise found
                path, new = found
                for kind, pod in seen.machines(new) if path == _NODES else seen.pods(new):
                    if group_of(pod):
                        continue  # what a group is, its pods say together: the next listing, a second later
                    yield await self._node(kind, pod, seen.notices, owner, fleet)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _node(self, kind: str, pod: Object, notices: dict[str, Notice], owner: str, fleet: str) -> Node:
        record = None
        if kind == "DELETED" or "deletionTimestamp" in pod["metadata"]:
            record = ended_in(await self._records.anchor(owner, fleet)).get(pod["metadata"]["name"])
        if kind == "DELETED":
            return record.node() if record is not None else gone_node(pod)
        return node_of(pod, record=record, notices=notices)


async def _fill(queue: asyncio.Queue[_Queued], informer: Informer) -> None:
    """Put what is there and then every change into a queue, until one of the two cannot be had."""
    try:
        async for new in informer.changes():
            if isinstance(new, Listed):
                await queue.put((informer.path, new))
            else:
                queue.put_nowait((informer.path, new))
    except ForbiddenError as exc:
        if informer.path != _NODES:  # those are read where they may be
            await queue.put(exc)
    except ProviderError as exc:
        await queue.put(exc)
    except asyncio.QueueFull:
        await queue.put(ProviderError(f"more than {_CHANGES_MAX} changes of {informer.path} at once"))


class SeenObjects:
    """The pods and the machines' notices as the API server has told of them; bounded by the fleet and the cluster."""

    def __init__(self) -> None:
        self.notices: dict[str, Notice] = {}
        self._pods: dict[str, Object] = {}

    def pods(self, new: Listed | Changed) -> list[Event]:
        """Take in what is new of pods and return the changes; those that a listing lacks have gone unseen."""
        if not isinstance(new, Listed):
            return self._pod(new.kind, new.item)
        there = {pod["metadata"]["uid"] for pod in new.items}
        gone = [pod for pod in self._pods.values() if pod["metadata"]["uid"] not in there]
        events = [event for pod in gone for event in self._pod("DELETED", pod)]
        for pod in new.items:
            events += self._pod("MODIFIED" if pod["metadata"]["name"] in self._pods else "ADDED", pod)
        return events

    def machines(self, new: Listed | Changed) -> list[Event]:
        """Take in what is new of machines and return the pods of those of which another notice follows."""
        if not isinstance(new, Listed):
            return self._machine(new.kind, new.item)
        there = {node["metadata"]["name"] for node in new.items}
        gone = [name for name in self.notices if name not in there]
        events = [event for name in gone for event in self._machine("DELETED", {"metadata": {"name": name}})]
        for node in new.items:
            events += self._machine("MODIFIED", node)
        return events

    def _pod(self, kind: str, pod: Object) -> list[Event]:
        name = pod["metadata"]["name"]
        before = self._pods.pop(name, None)
        if kind != "DELETED":
            self._pods[name] = pod
            if before is not None and before["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]:
                return []
        return [(kind, pod)]

    def _machine(self, kind: str, node: Object) -> list[Event]:
        name = node["metadata"]["name"]
        before, now = self.notices.pop(name, None), notice_of(node) if kind != "DELETED" else None
        if now is not None:
            self.notices[name] = now
        if before == now:
            return []
        return [("MODIFIED", pod) for pod in self._pods.values() if pod["spec"].get("nodeName") == name]

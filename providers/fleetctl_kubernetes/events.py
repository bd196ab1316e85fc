"""Changes of a fleet's pods and of the machines they are on, as the API server tells of them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ProviderError
from fleetctl_kubernetes.group_members import group_of
from fleetctl_kubernetes.identity import is_made_by_us
from fleetctl_kubernetes.informer import ForbiddenError, Informer, Listed
from fleetctl_kubernetes.notices import notice_of
from fleetctl_kubernetes.orders import gone_node, node_of
from fleetctl_kubernetes.pod_ends import is_preempted
from fleetctl_kubernetes.preemptions import takers_of
from fleetctl_kubernetes.settings import fleet_labels, selector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fleetctl.clock import Clock
    from fleetctl.model.node import Node, Notice
    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.identity import PodIdentities
    from fleetctl_kubernetes.informer import Changed
    from fleetctl_kubernetes.offered_nodes import OfferedNodes
    from fleetctl_kubernetes.records import FleetRecords

Object = dict[str, Any]
Event = tuple[str, Object]  # ADDED, MODIFIED or DELETED, and what
_CHANGES_MAX = 4096  # that wait to be taken in; a listing is one. Beyond them the watch breaks, and all is read anew
_NODES = "/api/v1/nodes"
_FORBIDDEN_AGAIN_S = 10.0  # a right that was taken may be given back

_Queued = tuple[str, "Listed | Changed"] | ProviderError  # the path and what is new there; or why there is no more


class PodEvents:
    """Implements NodeEvents: one watch of a fleet's pods, and one of the cluster's nodes where these may be read."""

    def __init__(
        self,
        connection: ClusterConnection,
        records: FleetRecords,
        identities: PodIdentities,
        clock: Clock,
        offered: OfferedNodes,
    ) -> None:
        self._connection = connection
        self._records = records
        self._identities = identities
        self._clock = clock
        self._offered = offered
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
        refused = partial(self._refused, (owner, fleet))
        tasks = [asyncio.create_task(_fill(queue, each, self._clock, refused)) for each in (pods, machines)]
        try:
            seen = SeenObjects()
            while True:
                found = await queue.get()
                if isinstance(found, ProviderError):
                    raise found
                path, new = found
                self._identities.warnings.unsay((owner, fleet), f"watch/{path}")
                if path == _NODES:
                    self._offered.take_in(new)
                for kind, pod in seen.machines(new) if path == _NODES else seen.pods(new):
                    if group_of(pod):
                        continue  # what a group is, its pods say together: the next listing, a second later
                    if (node := await self._node(kind, pod, seen, owner, fleet)) is not None:
                        yield node
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _refused(self, of: tuple[str, str], path: str, exc: ForbiddenError) -> None:
        late = "what is said of machines is not seen" if path == _NODES else "its pods' changes are seen a second later"
        self._identities.warnings.say(of, f"watch/{path}", f"{exc.message}: {late}")

    async def _node(self, kind: str, pod: Object, seen: SeenObjects, owner: str, fleet: str) -> Node | None:
        """Return what a change of a pod says; None: it says nothing of ours."""
        name = pod["metadata"]["name"]
        if not is_made_by_us(pod):
            return None  # the listing says so
        if kind == "DELETED" and "deletionTimestamp" not in pod["metadata"]:
            # Deleted with no grace; or somebody has taken its labels, and to who watches by them that is the same.
            there = await self._identities.still_there(name)
            if there is not None and there["metadata"]["uid"] == pod["metadata"]["uid"]:
                kind, pod = "MODIFIED", there
        record = None
        if kind == "DELETED" or "deletionTimestamp" in pod["metadata"]:
            record = await self._records.end_of(owner, fleet, pod["metadata"]["name"])
        if kind == "DELETED":
            return record.node() if record is not None else gone_node(pod)
        takers = seen.takers() if is_preempted(pod) else {}
        return node_of(pod, record=record, notices=seen.notices, takers=takers)


async def _fill(
    queue: asyncio.Queue[_Queued], informer: Informer, clock: Clock, refused: Callable[[str, ForbiddenError], None]
) -> None:
    """Put what is there and then every change into a queue, until that cannot be had; what is forbidden is tried again."""
    while True:
        try:
            await _fill_once(queue, informer)
        except ForbiddenError as exc:
            refused(informer.path, exc)
        else:
            return
        await clock.sleep(_FORBIDDEN_AGAIN_S)


async def _fill_once(queue: asyncio.Queue[_Queued], informer: Informer) -> None:
    try:
        async for new in informer.changes():
            if isinstance(new, Listed):
                await queue.put((informer.path, new))
            else:
                queue.put_nowait((informer.path, new))
    except ForbiddenError:
        raise
    except ProviderError as exc:
        await queue.put(exc)
    except asyncio.QueueFull:
        await queue.put(ProviderError(f"more than {_CHANGES_MAX} changes of {informer.path} at once"))


class SeenObjects:
    """The pods and the machines' notices as the API server has told of them; bounded by the fleet and the cluster."""

    def __init__(self) -> None:
        self.notices: dict[str, Notice] = {}
        self._pods: dict[str, Object] = {}

    def takers(self) -> dict[str, str]:
        """Return for whom pods are preempted, by the machine."""
        return takers_of(self._pods.values())

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
            # Who wrote which field is most of a pod's objects in memory, and nobody here asks.
            pod["metadata"].pop("managedFields", None)
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

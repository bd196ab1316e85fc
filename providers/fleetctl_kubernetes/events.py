"""Changes of a fleet's pods and of the machines they are on, as the API server tells of them."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from fleetctl.errors import CredentialsError, ProviderError
from fleetctl_kubernetes.notices import notice_of
from fleetctl_kubernetes.orders import gone_node, node_of
from fleetctl_kubernetes.records import ended_in
from fleetctl_kubernetes.settings import fleet_labels, selector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleetctl.model.node import Node, Notice
    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.records import FleetRecords

Object = dict[str, Any]
Event = tuple[str, Object]  # ADDED, MODIFIED or DELETED, and what
# The API server ends a watch after this; one that says nothing for longer was cut without our being told.
_WATCH_S = 120
_SILENT_S = _WATCH_S + 30.0
_EVENTS_MAX = 4096  # that wait to be taken in; beyond them all is read anew
_NODES = "/api/v1/nodes"
_LINE_BYTES_MAX = 4 * 2**20  # an object of etcd has 1.5 MiB at most


_Queued = tuple[str, str, Object] | ProviderError  # the path, the change, the object; or why there are no more


class PodEvents:
    """Implements NodeEvents: one watch of a fleet's pods, and one of the cluster's nodes where these may be read."""

    def __init__(self, connection: ClusterConnection, records: FleetRecords) -> None:
        self._connection = connection
        self._records = records

    async def watch(self, *, owner: str, fleet: str) -> AsyncIterator[Node]:
        """Yield pods as they change, and all pods of a machine of which something new is said."""
        queue: asyncio.Queue[_Queued] = asyncio.Queue(_EVENTS_MAX)
        namespace = await asyncio.to_thread(lambda: self._connection.namespace)
        of_fleet = {"labelSelector": selector(fleet_labels(owner, fleet))}
        tasks = [
            asyncio.create_task(self._fill(queue, f"/api/v1/namespaces/{namespace}/pods", of_fleet)),
            asyncio.create_task(self._fill(queue, _NODES, {})),
        ]
        try:
            seen = _Seen()
            while True:
                event = await queue.get()
                if isinstance(event, ProviderError):
                    raise event
                path, kind, item = event
                changes = seen.machine(kind, item) if path == _NODES else seen.pod(kind, item)
                for change, pod in changes:
                    yield await self._node(change, pod, seen.notices, owner, fleet)
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

    async def _fill(self, queue: asyncio.Queue[_Queued], path: str, query: dict[str, str]) -> None:
        """Put what is there and then every change into a queue, until one of the two cannot be had."""
        try:
            while True:
                async for kind, item in self._once(path, query):
                    queue.put_nowait((path, kind, item))
        except CredentialsError as exc:
            if path != _NODES:  # those are read where they may be
                await queue.put(exc)
        except ProviderError as exc:
            await queue.put(exc)
        except asyncio.QueueFull:
            await queue.put(ProviderError(f"more than {_EVENTS_MAX} events of {path} at once"))

    async def _once(self, path: str, query: dict[str, str]) -> AsyncIterator[Event]:
        """Yield one listing and the changes after it, until the API server ends the watch or forgets where it began."""
        import aiohttp

        target = await asyncio.to_thread(self._connection.target)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=_SILENT_S)
        connector = aiohttp.TCPConnector(ssl=target.tls if target.tls is not None else False)
        try:
            async with aiohttp.ClientSession(
                connector=connector, headers=target.headers, timeout=timeout, read_bufsize=_LINE_BYTES_MAX
            ) as session:
                get = partial(session.get, target.url + path, proxy=target.proxy, server_hostname=target.server_name)
                async with get(params=query) as response:
                    listing = await _checked(response, path)
                for item in listing["items"]:
                    yield "ADDED", item
                version = listing["metadata"]["resourceVersion"]
                watch = {**query, "watch": "true", "resourceVersion": version, "timeoutSeconds": str(_WATCH_S)}
                async with get(params=watch) as response:
                    if response.status != 200:
                        await _checked(response, path)
                    try:
                        async for line in response.content:
                            event = json.loads(line)
                            if event["type"] == "ERROR":
                                return  # 410: what came since is not kept any more; all is listed anew
                            yield event["type"], event["object"]
                    finally:
                        # A polite end would wait for a server that has more to say.
                        if response.connection is not None and response.connection.transport is not None:
                            response.connection.transport.abort()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as exc:
            raise ProviderError(f"the watch of {path} broke: {exc}", hint="it is opened again") from exc


class _Seen:
    """The pods and the machines' notices as the events have told of them; bounded by the fleet and the cluster."""

    def __init__(self) -> None:
        self.notices: dict[str, Notice] = {}
        self._pods: dict[str, Object] = {}

    def pod(self, kind: str, pod: Object) -> list[Event]:
        """Take in a change of a pod and return it."""
        if kind == "DELETED":
            self._pods.pop(pod["metadata"]["name"], None)
        else:
            self._pods[pod["metadata"]["name"]] = pod
        return [(kind, pod)]

    def machine(self, kind: str, node: Object) -> list[Event]:
        """Take in a change of a machine and return its pods, if another notice follows from it."""
        name = node["metadata"]["name"]
        before, now = self.notices.pop(name, None), notice_of(node) if kind != "DELETED" else None
        if now is not None:
            self.notices[name] = now
        if before == now:
            return []
        return [("MODIFIED", pod) for pod in self._pods.values() if pod["spec"].get("nodeName") == name]


async def _checked(response: Any, path: str) -> Object:  # noqa: ANN401  # aiohttp's, imported late
    """Return a listing. Raises CredentialsError, ProviderError."""
    if response.status in (401, 403):
        raise CredentialsError(f"{path}: may not be watched ({response.status})", hint="see `fleetctl doctor`")
    if response.status != 200:
        raise ProviderError(f"{path}: {response.status} {(await response.text())[:200]}")
    found: Object = await response.json()
    return found

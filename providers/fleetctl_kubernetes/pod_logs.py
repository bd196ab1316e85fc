"""What engines wrote, of their pods' containers, while the pods are there."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from fleetctl.model.log import LogChunk
from fleetctl_kubernetes.connection import NotThereError
from fleetctl_kubernetes.settings import REPLICA, fleet_labels, label_value, selector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl_kubernetes.connection import ClusterConnection, Object

_CORE = "CoreV1Api"
_LOG_BYTES_MAX = 16 * 2**20  # kubelet rotates a container's log at 10 MiB


class PodLogs:
    """Implements NodeLogs."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self._names: dict[tuple[str, str], dict[str, str]] = {}  # by fleet, then by the replica's label

    def note_pods(self, owner: str, fleet: str, pods: Iterable[Object]) -> None:
        """Take in which pods a fleet has, so that nobody lists them for each piece of a log."""
        self._names[owner, fleet] = _names_by_replica(pods)

    async def read_log(self, *, owner: str, fleet: str, replica_id: str, after: int | None, bytes_max: int) -> LogChunk:
        """Return a piece of what a replica's container wrote, while its pod is there."""
        replica = label_value(replica_id)
        name = self._names.get((owner, fleet), {}).get(replica)
        if name is not None:
            with suppress(NotThereError):  # it has gone since it was listed
                return await self._read(name, after=after, bytes_max=bytes_max)
        labels = {**fleet_labels(owner, fleet), REPLICA: replica}
        found = await self._connection.read(
            _CORE, "list_namespaced_pod", await self._namespace(), label_selector=selector(labels)
        )
        name = _names_by_replica(found["items"]).get(replica)
        if name is None:
            return LogChunk(text="", end=0)
        return await self._read(name, after=after, bytes_max=bytes_max)

    async def _read(self, name: str, *, after: int | None, bytes_max: int) -> LogChunk:
        # The API server counts from the beginning only.
        most = _LOG_BYTES_MAX if after is None else after + bytes_max
        text = await self._connection.read_text(
            _CORE, "read_namespaced_pod_log", name, await self._namespace(), limit_bytes=most
        )  # fmt: skip
        # A shorter one than was read up to is another: kubelet has begun a new file, or the container was started again.
        start = max(0, len(text) - bytes_max) if after is None or after > len(text) else after
        return LogChunk(text=text[start : start + bytes_max].decode(errors="replace"), end=len(text))

    async def _namespace(self) -> str:
        return await asyncio.to_thread(lambda: self._connection.namespace)


def _names_by_replica(pods: Iterable[Object]) -> dict[str, str]:
    """Return the pod of each replica; of one that spans several, its leader's, which is the shortest name."""
    found: dict[str, str] = {}
    for pod in pods:
        replica, name = (pod["metadata"].get("labels") or {}).get(REPLICA, ""), pod["metadata"]["name"]
        known = found.get(replica, name)
        found[replica] = min(known, name, key=lambda each: (len(each), each))
    return found

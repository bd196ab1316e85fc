"""Interruptions on request, for drills: a mark on a replica's own pods, read as a spot node's notice, and kept at its deadline."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fleetctl import codec
from fleetctl.errors import FleetctlError, ProviderError, UnavailableError
from fleetctl.model.catalogue import Market
from fleetctl_kubernetes import manifest
from fleetctl_kubernetes.connection import ConflictError, NotThereError
from fleetctl_kubernetes.group_members import group_of
from fleetctl_kubernetes.orders import ENDED, InterruptionMark, interrupted_at, is_due, order_in
from fleetctl_kubernetes.settings import INTERRUPTION, MANAGER, pod_name

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from datetime import datetime

    from fleetctl.clock import Clock
    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.groups import ReplicaGroups
    from fleetctl_kubernetes.recent_warnings import RecentWarnings
    from fleetctl_kubernetes.records import FleetRecords

Object = dict[str, Any]
_CORE = "CoreV1Api"
_TRIES_MAX = 10  # a pod that starts is written several times a second by its kubelet
# A grace of 0 would take the pod off the list while its engine may still run: the scheduler would give its GPU away, to
# anybody's pod, and kubelet refuse that one. With 1 it is gone once kubelet says so, some three seconds later at most.
_GRACE_S = manifest.grace_period(0.0)


class PodInterruptions:
    """Implements Interruptions: whoever calls marks the pods, and whoever keeps their fleet ends them.

    Nodes are not touched, and no pod but a replica's own: others may be on the same node. The mark is on the pod, so it
    outlives both processes and goes with the pod.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        records: FleetRecords,
        groups: ReplicaGroups,
        clock: Clock,
        warnings: RecentWarnings,
    ) -> None:
        self._connection = connection
        self._records = records
        self._groups = groups
        self._clock = clock
        self._warnings = warnings

    async def interrupt(self, node_id: str, *, notice_s: float) -> None:
        """Mark every pod of a replica; an earlier deadline stays. Raises ProviderError, UnavailableError while it is on no node."""
        pods = [pod for pod in await self._pods(node_id) if pod.get("status", {}).get("phase") not in ENDED]
        if not pods:
            raise _no_node(node_id)
        order = order_in(pods[0])
        if order.market is not Market.SPOT:
            raise ProviderError(
                f"{order.replica_id} is {order.market}, and only spot nodes are interrupted",
                hint="choose a spot replica, or drain this one",
            )
        if not any(pod["spec"].get("nodeName") for pod in pods):
            raise UnavailableError(
                f"{order.replica_id} is on no node yet: pod {pods[0]['metadata']['name']} waits for one",
                hint="wait until it is ready",
            )
        deadline = self._clock.now() + timedelta(seconds=notice_s)
        await asyncio.gather(*(self._mark(pod, deadline) for pod in pods))

    async def carry_out(self, of: tuple[str, str], pods: Iterable[Object]) -> None:
        """Take what is due of a fleet's pods; what fails is said, and tried again with the next listing."""
        now, single, groups = self._clock.now(), list[Object](), dict[str, list[Object]]()
        for pod in pods:
            if group_of(pod):
                groups.setdefault(group_of(pod), []).append(pod)
            elif is_due(pod, now) and not _is_taken(pod):
                single.append(pod)
        due = {name: own for name, own in groups.items() if any(is_due(pod, now) for pod in own)}
        ends = [(pod["metadata"]["name"], self._take(pod)) for pod in single]
        ends += [(name, self._groups.take(name, own, grace_s=_GRACE_S)) for name, own in due.items()]
        await asyncio.gather(*(self._tried(of, name, end) for name, end in ends))

    async def _tried(self, of: tuple[str, str], name: str, end: Coroutine[object, object, None]) -> None:
        try:
            await end
        except FleetctlError as exc:
            self._warnings.say(
                of, f"interrupt/{name}", f"pod {name} is due by a drill and not taken yet: {exc.message}"
            )

    async def _take(self, pod: Object) -> None:
        await self._records.note_stopped(pod)
        metadata = pod["metadata"]
        body = {"gracePeriodSeconds": _GRACE_S, "preconditions": {"uid": metadata["uid"]}}
        try:
            await self._connection.change(
                _CORE, "delete_namespaced_pod", metadata["name"], metadata["namespace"], body=body
            )
        except (NotThereError, ConflictError):
            return  # it has gone meanwhile

    async def _mark(self, pod: Object, deadline: datetime) -> None:
        name, namespace, uid = (pod["metadata"][key] for key in ("name", "namespace", "uid"))
        mark = codec.encode(InterruptionMark(deadline=deadline, uid=uid)).decode()
        for _ in range(_TRIES_MAX):
            before = interrupted_at(pod)
            if before is not None and before <= deadline:
                return
            # Of what was read and nothing else: another drill's mark may have come meanwhile, or another pod.
            read = {key: pod["metadata"][key] for key in ("uid", "resourceVersion")}
            body = {"metadata": {**read, "annotations": {INTERRUPTION: mark}}}
            try:
                await self._connection.change(
                    _CORE, "patch_namespaced_pod", name, namespace, body,
                    field_manager=MANAGER, _content_type="application/merge-patch+json",
                )  # fmt: skip
            except NotThereError as exc:
                raise _no_node(name) from exc
            except ConflictError:
                pod = await self._read(name, namespace) or {}
                if not pod or pod["metadata"]["uid"] != uid:
                    raise _no_node(name) from None
            else:
                return
        raise UnavailableError(f"pod {name} changes all the time, and could not be marked", hint="try again")

    async def _pods(self, node_id: str) -> list[Object]:
        """Return the pods of a node of ours: one, or those of its group."""
        pod = await self._read(node_id, await asyncio.to_thread(lambda: self._connection.namespace))
        found = [pod] if pod is not None else await self._groups.pods_of(node_id)
        return [each for each in found if _is_of(each, node_id)]

    async def _read(self, name: str, namespace: str) -> Object | None:
        try:
            return await self._connection.read(_CORE, "read_namespaced_pod", name, namespace)
        except NotThereError:
            return None


def _is_of(pod: Object, node_id: str) -> bool:
    """Whether a pod was made for an order of ours, of which this is the node."""
    try:
        order = order_in(pod)
    except ProviderError:
        return False
    return bool(pod_name(order.owner, order.token) == node_id)


def _is_taken(pod: Object) -> bool:
    """Whether a pod is told to end so soon already."""
    metadata = pod["metadata"]
    return "deletionTimestamp" in metadata and metadata.get("deletionGracePeriodSeconds", 0) <= _GRACE_S


def _no_node(name: str) -> ProviderError:
    return ProviderError(f"no living node {name}", hint="list the replicas: fleetctl ls")

"""A replica over several nodes: one LeaderWorkerSet with one group, whose pods are listed as one node with members."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleetctl.catalogue.kubernetes_rights import GROUP_RIGHTS
from fleetctl.errors import CredentialsError, ProviderError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl_kubernetes import group_members as members
from fleetctl_kubernetes.connection import ConflictError, NotThereError
from fleetctl_kubernetes.orders import asked_end
from fleetctl_kubernetes.reviews import may
from fleetctl_kubernetes.settings import MANAGER, fleet_labels, selector

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from fleetctl.clock import Clock
    from fleetctl.model.node import Node, Notice
    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.orders import EndRecord
    from fleetctl_kubernetes.records import FleetRecords

Object = dict[str, Any]
_API = "CustomObjectsApi"
_PLURAL = (members.GROUP, members.VERSION)
_ABSENT_FOR_S = 60.0  # where the kind is not installed it is asked for again after this
_STOPPING_MAX = 256  # groups at once, of which the grace is remembered; the first of more have their pods' own
ABSENT = "this cluster has no LeaderWorkerSet, which a replica over several nodes is made of"
INSTALL = "install it (https://lws.sigs.k8s.io), or leave launch.pipeline_parallel out of the profile"


class ReplicaGroups:
    """The groups of fleets, by the names that their orders give them."""

    def __init__(self, connection: ClusterConnection, records: FleetRecords, clock: Clock) -> None:
        self._connection = connection
        self._records = records
        self._clock = clock
        # Which pods each group was first seen with: one that was made anew is not the replica that was ordered.
        self._first: dict[str, dict[str, str]] = defaultdict(dict)
        self._graces: dict[str, int] = {}  # that groups which we stop have, in seconds
        self._absent_until_s = float("-inf")

    async def make(self, name: str, body: Object) -> Object:
        """Return the set of this name: made now, or there already. Raises ProviderError where the kind is not installed."""
        try:
            made = await self._connection.change(
                _API, "create_namespaced_custom_object", *await self._place(), body, field_manager=MANAGER
            )  # fmt: skip
        except NotThereError as exc:
            raise ProviderError(ABSENT, hint=INSTALL) from exc
        except ConflictError:
            found = await self.find(name)
            if found is None:
                raise
            return found
        self._absent_until_s = float("-inf")
        return made

    async def find(self, name: str) -> Object | None:
        """Return the set of this name; None: there is none."""
        if self._clock.monotonic_s() < self._absent_until_s:
            return None
        try:
            return await self._connection.read(_API, "get_namespaced_custom_object", *await self._place(), name)
        except (NotThereError, CredentialsError):
            return None

    async def of_fleet(self, owner: str, fleet: str) -> dict[str, Object]:
        """Return a fleet's sets by name; none where the kind is not installed, or may not be listed."""
        if self._clock.monotonic_s() < self._absent_until_s:
            return {}
        try:
            listing = await self._connection.read(
                _API, "list_namespaced_custom_object", *await self._place(),
                label_selector=selector(fleet_labels(owner, fleet)),
            )  # fmt: skip
        except (NotThereError, CredentialsError):
            self._absent_until_s = self._clock.monotonic_s() + _ABSENT_FOR_S
            return {}
        return {each["metadata"]["name"]: each for each in listing["items"]}

    async def pods_of(self, name: str) -> list[Object]:
        """Return a group's pods."""
        namespace = (await self._place())[2]
        listing = await self._connection.read(
            "CoreV1Api", "list_namespaced_pod", namespace, label_selector=f"{members.NAME}={name}"
        )  # fmt: skip
        return list(listing["items"])

    async def nodes(
        self,
        sets: Mapping[str, Object],
        pods: Iterable[Object],
        *,
        ended: Mapping[str, EndRecord],
        notices: Mapping[str, Notice],
        in_vain: Collection[str] = (),
        is_keeper: bool,
    ) -> list[Node]:
        """Return each group as a node. `is_keeper`: one that has lost a pod is ended, whole, before it is made anew."""
        by_name: dict[str, list[Object]] = {name: [] for name in sets}
        for pod in pods:
            by_name.setdefault(members.group_of(pod), []).append(pod)
        # Sets and pods are listed at once: a set that was made in between has pods all the same.
        unlisted = [name for name in by_name if name not in sets]
        looked_up = zip(unlisted, await asyncio.gather(*map(self.find, unlisted)), strict=True)
        sets = {**sets, **{name: each for name, each in looked_up if each is not None}}
        found = []
        for name, own in by_name.items():
            record = ended.get(name)
            if is_keeper and record is None and (fault := self._fault(name, sets.get(name), own)):
                record = await self._end(sets.get(name), own, fault)
            if name in self._graces:
                await asyncio.gather(*(self._hasten(each, self._graces[name]) for each in own))
            node = members.node_of(name, sets.get(name), own, record=record, notices=notices)
            found.append(replace(node, is_out_of_stock=any(each["metadata"]["name"] in in_vain for each in own)))
        return found

    async def stop(self, group: Object, *, grace_s: int) -> None:
        """Remember that it was stopped, or taken by a drill, and delete it whole.

        The garbage collector tells its pods to end, with their own grace; each listing from here makes it this one.
        """
        self._graces[group["metadata"]["name"]] = grace_s
        while len(self._graces) > _STOPPING_MAX:
            del self._graces[next(iter(self._graces))]
        pods = await self.pods_of(group["metadata"]["name"])
        now = self._clock.now()
        await self._records.note(members.end_record(group, pods, reason=asked_end(pods, now), now=now))
        self._first.pop(group["metadata"]["name"], None)
        await self._delete(group)

    async def take(self, name: str, pods: Iterable[Object], *, grace_s: int) -> None:
        """End a group that a drill has been announced for; again at every look, until its pods are told to end so soon."""
        group = await self.find(name)
        if group is not None and "deletionTimestamp" not in group["metadata"]:
            await self.stop(group, grace_s=grace_s)
        await asyncio.gather(*(self._hasten(pod, grace_s) for pod in pods))

    def made(self, group: Object) -> Node:
        """Return the node of a group that was made just now."""
        return members.node_of(group["metadata"]["name"], group, [], record=None, notices={})

    def _fault(self, name: str, group: Object | None, pods: list[Object]) -> str:
        """Return what has become of a pod of a group that was to stay; empty: nothing has."""
        if group is not None and "deletionTimestamp" in group["metadata"]:
            return "deleted"
        first = self._first[name]
        for pod in pods:
            first.setdefault(pod["metadata"]["name"], pod["metadata"]["uid"])
        return members.fault_of(name, first, pods)

    async def _end(self, group: Object | None, pods: list[Object], fault: str) -> EndRecord:
        """Remember why a group ended, and delete what is left of it: its pods have their own grace to drain in."""
        record = members.end_record(group, pods, reason=fault, now=self._clock.now())
        await self._records.note(record)
        self._first.pop(record.node().id, None)
        if group is not None:
            await self._delete(group)
        return record

    async def _delete(self, group: Object) -> None:
        metadata = group["metadata"]
        body = {"propagationPolicy": "Background", "preconditions": {"uid": metadata["uid"]}}
        with suppress(NotThereError, ConflictError):  # it has gone meanwhile
            place = (*await self._place(), metadata["name"])
            await self._connection.change(_API, "delete_namespaced_custom_object", *place, body=body)

    async def _hasten(self, pod: Object, grace_s: int) -> None:
        metadata = pod["metadata"]
        if metadata.get("deletionGracePeriodSeconds", 0) <= grace_s:  # or it is not told to end yet
            return
        body = {"gracePeriodSeconds": grace_s, "preconditions": {"uid": metadata["uid"]}}
        with suppress(NotThereError, ConflictError):
            namespace = metadata["namespace"]
            await self._connection.change("CoreV1Api", "delete_namespaced_pod", metadata["name"], namespace, body=body)

    async def _place(self) -> tuple[str, str, str, str]:
        return (*_PLURAL, await asyncio.to_thread(lambda: self._connection.namespace), members.PLURAL)


async def group_finding(connection: ClusterConnection, size: int) -> Finding:
    """Return whether replicas over `size` nodes can be made."""
    place = (*_PLURAL, connection.namespace, members.PLURAL)
    name = "groups"
    try:
        await connection.read(_API, "list_namespaced_custom_object", *place, limit=1)
    except NotThereError:
        return Finding(name=name, verdict=Verdict.FAIL, detail=ABSENT, hint=INSTALL)
    missing = [f"{verb} {what}" for verb, what in GROUP_RIGHTS if not await may(connection, verb, what, place[2])]
    if missing:
        hint = f"have them granted; see `kubectl auth can-i --list -n {place[2]}`"
        return Finding(name=name, verdict=Verdict.FAIL, detail=f"not allowed: {', '.join(missing)}", hint=hint)
    return Finding(name=name, verdict=Verdict.OK, detail=f"replicas of {size} pods are made as LeaderWorkerSets")

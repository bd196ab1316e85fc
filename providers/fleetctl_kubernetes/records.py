"""What a fleet's pods share: a service account without rights, and the ConfigMap that owns them and remembers the ended ones."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl import codec
from fleetctl.errors import ProviderError
from fleetctl.model.shared import SharedResource
from fleetctl_kubernetes.connection import ConflictError, NotThereError
from fleetctl_kubernetes.orders import EndRecord, asked_end, instant, order_in
from fleetctl_kubernetes.pod_ends import exit_reason
from fleetctl_kubernetes.settings import MANAGED_BY, MANAGER, OWNER, fleet_labels, fleet_name, label_value, pod_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from fleetctl.clock import Clock
    from fleetctl_kubernetes.connection import ClusterConnection

Object = dict[str, Any]
RECORDS, ACCOUNT, PRIORITIES = "records", "service-account", "priorities"
_KEPT = timedelta(hours=1)
# A ConfigMap holds a mebibyte; a record has some 400 bytes.
_RECORDS_MAX = 1500
_APPLY = "application/apply-patch+yaml"


@dataclass(slots=True)
class _Merge:
    """Entries that one patch writes, and what became of it."""

    entries: dict[str, str | None] = field(default_factory=dict)
    is_written: bool = False
    error: ProviderError | None = None


class FleetRecords:
    """The shared objects of fleets, each found by its fleet's own name."""

    def __init__(self, connection: ClusterConnection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._open: dict[tuple[str, str], _Merge] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._read: dict[tuple[str, str], Object] = {}  # the data of each fleet's ConfigMap as it was last read

    def needed(self, owner: str, fleet: str) -> tuple[SharedResource, ...]:
        """Return what there is, in the order in which they are made."""
        return tuple(
            SharedResource(token=f"{fleet_name(owner, fleet)}-{kind}", owner=owner, fleet=fleet, kind=kind)
            for kind in (ACCOUNT, PRIORITIES, RECORDS)
        )

    async def prepare(self, resource: SharedResource) -> None:
        """Apply one, as the field manager `fleetctl`; what others have set on it stays. Raises ProviderError for a stranger's."""
        name = fleet_name(resource.owner, resource.fleet)
        kind, verb = _KINDS[resource.kind]
        there = await self._found(verb, name)
        if there is not None and not is_owned(there, resource.owner):
            raise ProviderError(
                f"{kind} {name} in {self._connection.namespace} is somebody else's",
                hint="nothing of it was touched: remove it, or work in another namespace",
            )
        await self._apply(resource.kind, resource.owner, resource.fleet)

    async def make_account(self, owner: str, fleet: str) -> None:
        """Have the service account there: pods are refused without it."""
        await self._apply(ACCOUNT, owner, fleet)

    async def _apply(self, resource_kind: str, owner: str, fleet: str) -> Object:
        kind, verb = _KINDS[resource_kind]
        name = fleet_name(owner, fleet)
        metadata = {"name": name, "labels": fleet_labels(owner, fleet)}
        body: Object = {"apiVersion": "v1", "kind": kind, "metadata": metadata}
        if resource_kind == ACCOUNT:
            body["automountServiceAccountToken"] = False
        return await self._connection.change(
            "CoreV1Api", f"patch_namespaced_{verb}", name, self._connection.namespace, body,
            field_manager=MANAGER, force=True, _content_type=_APPLY,
        )  # fmt: skip

    async def teardown(self, resource: SharedResource) -> None:
        """Delete one, if it is ours; with the records go whatever pods of the fleet are still there."""
        name = fleet_name(resource.owner, resource.fleet)
        _, verb = _KINDS[resource.kind]
        there = await self._found(verb, name)
        if there is None or not is_owned(there, resource.owner):
            return
        body = {"preconditions": {"uid": there["metadata"]["uid"]}, "propagationPolicy": "Background"}
        with suppress(NotThereError, ConflictError):  # it has gone meanwhile
            await self._connection.change(
                "CoreV1Api", f"delete_namespaced_{verb}", name, self._connection.namespace, body=body
            )  # fmt: skip

    async def anchor(self, owner: str, fleet: str) -> Object | None:
        """Return the ConfigMap of a fleet; None: it was not prepared, or is torn down."""
        found = await self._found("config_map", fleet_name(owner, fleet))
        if found is None or not is_owned(found, owner):
            self._read.pop((owner, fleet), None)
            return None
        self._read[owner, fleet] = found.get("data") or {}
        return {"kind": "ConfigMap", **found}

    async def end_of(self, owner: str, fleet: str, name: str) -> EndRecord | None:
        """Return the record of a pod that we have ended; None: there is none.

        A record never changes, so what was read of one is not read again: of a storm's hundreds of pods each would be
        a reading of the whole ConfigMap.
        """
        if name not in self._read.get((owner, fleet), {}):
            await self.anchor(owner, fleet)
        text = self._read.get((owner, fleet), {}).get(name)
        return _read_record(text) if text is not None else None

    async def reclaimed(self, owner: str, fleet: str, pods: Iterable[Object]) -> Object | None:
        """Return the ConfigMap that owns these pods with its labels set back; None: it has gone, or is somebody else's."""
        name, owners = fleet_name(owner, fleet), {uid for pod in pods for uid in owner_uids(pod)}
        found = await self._found("config_map", name) if owners else None
        if found is None or found["metadata"]["uid"] not in owners:
            return None
        return {"kind": "ConfigMap", **await self._apply(RECORDS, owner, fleet)}

    async def made_again(self, owner: str, fleet: str) -> Object:
        """Return the ConfigMap of a fleet that has none, made now. Raises ProviderError where that one's name is somebody else's."""
        resource = next(each for each in self.needed(owner, fleet) if each.kind == RECORDS)
        await self.prepare(resource)
        found = await self.anchor(owner, fleet)
        if found is None:
            raise ProviderError(
                f"ConfigMap {fleet_name(owner, fleet)} in {self._connection.namespace} is deleted again and again",
                hint="end what deletes it",
            )
        return found

    async def note_stopped(self, pod: Object) -> None:
        """Remember a pod that is about to be deleted by us; what it ended with by itself, or by a drill, is kept."""
        order, now = order_in(pod), self._clock.now()
        record = EndRecord(
            order=order,
            host=pod.get("status", {}).get("podIP", ""),
            created_at=instant(pod["metadata"]["creationTimestamp"]),
            ended_at=now,
            exit_reason=exit_reason(pod) or asked_end((pod,), now),
        )
        await self.note(record)

    async def note(self, record: EndRecord) -> None:
        """Remember how an order's node ended."""
        order = record.order
        name = pod_name(order.owner, order.token)
        await self._merge(order.owner, order.fleet, {name: codec.encode(record).decode()})

    async def prune(self, owner: str, fleet: str, ended: Mapping[str, EndRecord], living: set[str]) -> None:
        """Forget what ended over an hour ago and has no pod any more, and the oldest beyond what a ConfigMap holds."""
        old = expired(ended, living, now=self._clock.now())
        if old:
            await self._merge(owner, fleet, dict.fromkeys(old))

    async def _found(self, verb: str, name: str) -> Object | None:
        try:
            place = (name, self._connection.namespace)
            return await self._connection.read("CoreV1Api", f"read_namespaced_{verb}", *place)
        except NotThereError:
            return None

    async def _merge(self, owner: str, fleet: str, entries: Mapping[str, str | None]) -> None:
        """Write entries, in one patch with all that others want written while the patch before it is under way.

        Of a node storm's four hundred stops each would else be a write of the whole ConfigMap, one after the other.
        """
        key = (owner, fleet)
        merge = self._open.setdefault(key, _Merge())
        merge.entries.update(entries)
        async with self._locks.setdefault(key, asyncio.Lock()):
            if merge.error is not None:
                raise merge.error
            if merge.is_written:
                return
            if self._open.get(key) is merge:
                del self._open[key]  # whoever comes from now on is of the next
            try:
                await self._patch(owner, fleet, merge.entries)
            except ProviderError as exc:
                merge.error = exc
                raise
            merge.is_written = True

    async def _patch(self, owner: str, fleet: str, entries: Mapping[str, str | None]) -> None:
        # Keys of their own in a merge patch: whoever else writes one at this moment takes nothing of it back.
        place = (fleet_name(owner, fleet), self._connection.namespace)
        try:
            await self._connection.change(
                "CoreV1Api", "patch_namespaced_config_map", *place, {"data": dict(entries)},
                field_manager=MANAGER, _content_type="application/merge-patch+json",
            )  # fmt: skip
        except NotThereError:
            return  # the fleet is torn down, and its pods with it: nobody asks after them


def ended_in(anchor: Object | None) -> dict[str, EndRecord]:
    """Return the records of a fleet's ConfigMap by the pod's name; what cannot be read was not written by us."""
    found: dict[str, EndRecord] = {}
    for name, text in ((anchor or {}).get("data") or {}).items():
        record = _read_record(text)
        if record is not None:
            found[name] = record
    return found


def _read_record(text: str) -> EndRecord | None:
    try:
        return _record(text)
    except msgspec.DecodeError:
        return None


# Read of every listing, once a second; a record never changes.
@lru_cache(maxsize=4096)
def _record(text: str) -> EndRecord:
    return codec.decode(EndRecord, text.encode())


def expired(ended: Mapping[str, EndRecord], living: set[str], *, now: datetime) -> list[str]:
    """Return the names of records that are not kept any longer."""
    over = {name: record for name, record in ended.items() if name not in living}
    latest_first = sorted(over, key=lambda name: over[name].ended_at, reverse=True)
    return [
        name
        for place, name in enumerate(latest_first)
        if place >= _RECORDS_MAX or now - over[name].ended_at > _KEPT
    ]  # fmt: skip


def owner_uids(item: Object) -> set[str]:
    """Return the uids of what an object goes with."""
    return {str(each["uid"]) for each in item["metadata"].get("ownerReferences") or ()}


def is_owned(item: Object, owner: str) -> bool:
    """Whether an object is this store's by its labels."""
    labels = item["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY) == MANAGER and labels.get(OWNER) == label_value(owner)


_KINDS = {RECORDS: ("ConfigMap", "config_map"), ACCOUNT: ("ServiceAccount", "service_account")}

"""Leases of a state in the cluster as Leases of coordination.k8s.io, for people and their tools: kubectl get leases.

Nothing is decided by them: what fences is the write of the state. So that a controller which was frozen does not show itself
over its successor, each write has a condition, and an older epoch is never written over a newer one.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from fleetctl.errors import StateError
from fleetctl.ports.lease import LEASE_TTL_S
from fleetctl_kubernetes.connection import ConflictError, NotThereError
from fleetctl_kubernetes.settings import FLEET, MANAGED_BY, MANAGER, STATE, label_value

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.ports.lease import Lease
    from fleetctl_kubernetes.connection import ClusterConnection, Object

_TRIES = 3  # others write one in a takeover alone
_LAWFUL_FLEET = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class LeaseObjects:
    """The Leases of one state, each found by its fleet's name."""

    def __init__(self, connection: ClusterConnection, namespace: str, labels: dict[str, str]) -> None:
        self._connection = connection
        self._namespace = namespace
        self._labels = labels
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._versions: dict[str, str] = {}  # by fleet, as they were written last

    def show(self, lease: Lease) -> None:
        """Show a lease, unless a newer one is shown. Raises ProviderError; StateError for somebody else's object."""
        for _ in range(_TRIES):
            version = self._versions.pop(lease.fleet, "")
            try:
                if not version:
                    found = self._found(lease.fleet)
                    if found is not None and _epoch(found) > lease.epoch:
                        return
                    version = found["metadata"]["resourceVersion"] if found is not None else ""
                written = self._patch(lease, version) if version else self._create(lease)
            except (ConflictError, NotThereError):
                if not version and not self._found(lease.fleet):
                    raise  # there is no such namespace
                continue
            self._versions[lease.fleet] = written["metadata"]["resourceVersion"]
            return

    def _found(self, fleet: str) -> Object | None:
        try:
            found = self._connection.request("GET", f"{self._path}/{self._name(fleet)}", query={}, headers=_JSON)
        except NotThereError:
            return None
        labels = found["metadata"].get("labels") or {}
        if any(labels.get(name) != value for name, value in self._labels.items()):
            raise StateError(
                f"Lease {self._name(fleet)} in {self._namespace} is somebody else's",
                hint="nothing of it was touched; the fleet's lease holds all the same",
            )
        return found

    def _create(self, lease: Lease) -> Object:
        metadata = {"name": self._name(lease.fleet), "labels": {**self._labels, FLEET: label_value(lease.fleet)}}
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": _specification(lease),
        }
        return self._connection.request("POST", self._path, query=_MANAGER, headers=_JSON, body=body)

    def _patch(self, lease: Lease, version: str) -> Object:
        body = {"metadata": {"resourceVersion": version}, "spec": _specification(lease)}
        headers = {**_JSON, "Content-Type": "application/merge-patch+json"}
        path = f"{self._path}/{self._name(lease.fleet)}"
        return self._connection.request("PATCH", path, query=_MANAGER, headers=headers, body=body)

    def _name(self, fleet: str) -> str:
        prefix = f"-{self._labels[STATE]}" if self._labels[STATE] != "default" else ""
        lawful = (
            fleet if _LAWFUL_FLEET.fullmatch(fleet) else f"sha256-{hashlib.sha256(fleet.encode()).hexdigest()[:40]}"
        )
        return f"{self._labels[MANAGED_BY]}{prefix}.{lawful}"


_JSON = {"Accept": "application/json", "Content-Type": "application/json"}
_MANAGER = {"fieldManager": MANAGER}


def _specification(lease: Lease) -> Object:
    """Return what people see: whoever has ended by itself holds nothing, as with client-go's leader election."""
    is_released = lease.released_at is not None
    return {
        "holderIdentity": "" if is_released else f"{lease.holder.host}_{lease.holder.pid}",
        "leaseDurationSeconds": int(LEASE_TTL_S),
        "acquireTime": _micro_time(lease.acquired_at),
        "renewTime": _micro_time(lease.last_seen_at),
        "leaseTransitions": lease.epoch,
    }


def _epoch(found: Object) -> int:
    return int((found.get("spec") or {}).get("leaseTransitions") or 0)


def _micro_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

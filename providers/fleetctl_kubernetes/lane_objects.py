"""What stands around a lane's pods: a headless Service and a PodDisruptionBudget, kept as they should be."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.catalogue import kubernetes_objects
from fleetctl.errors import CredentialsError, FleetctlError, ProviderError
from fleetctl_kubernetes import manifest
from fleetctl_kubernetes.connection import ConflictError, FieldConflictError, NotThereError
from fleetctl_kubernetes.group_members import group_of
from fleetctl_kubernetes.lane_pods import LaneTargets, epoch_of, lacks_pods, pods_wanted, staying_pods
from fleetctl_kubernetes.network import clients_of
from fleetctl_kubernetes.pod_lanes import PodLanes
from fleetctl_kubernetes.recent_warnings import RecentWarnings
from fleetctl_kubernetes.records import is_owned
from fleetctl_kubernetes.settings import EPOCH, LANE, MANAGER, SERVES, fleet_labels, lane_name, selector

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from fleetctl.clock import Clock
    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.settings import ClusterSettings

Object = dict[str, Any]
Wanted = dict[tuple[str, str], Object]  # by kind and name
_APPLY = "application/apply-patch+yaml"
# Somebody's edit is undone within this; a change in the number of pods is followed at once.
_CHECK_EVERY_S = 5.0
_OBJECTS, _CORDONED = "objects", "cordoned"  # what a warning is about
# An apply that names a resourceVersion makes an object that is not there, and is refused (409) where there is one of any
# other. No object has this one: etcd's first write has 2.
_NOT_THERE = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ObjectKind:
    """How objects of a kind are reached."""

    version: str
    name: str
    api: str  # the client's class
    verb: str  # what its methods end in


_SERVICE = _ObjectKind(version="v1", name="Service", api="CoreV1Api", verb="service")
_BUDGET = _ObjectKind(
    version="policy/v1", name="PodDisruptionBudget", api="PolicyV1Api", verb="pod_disruption_budget"
)  # fmt: skip
_POLICY = _ObjectKind(
    version="networking.k8s.io/v1", name="NetworkPolicy", api="NetworkingV1Api", verb="network_policy"
)  # fmt: skip
_KINDS = (_SERVICE, _BUDGET, _POLICY)


class LaneObjects:
    """The objects of every lane that has pods; each is owned by its fleet's ConfigMap, and goes with it."""

    def __init__(self, connection: ClusterConnection, clock: Clock, settings: ClusterSettings) -> None:
        self._connection = connection
        self._clock = clock
        self._settings = settings
        self._pod_lanes = PodLanes(connection)
        self._kept: dict[tuple[str, str], tuple[float, Wanted]] = {}  # when last looked at, and for what
        self._targets: dict[tuple[str, str], LaneTargets] = {}
        self.warnings = RecentWarnings(clock)

    def note_targets(
        self, *, owner: str, fleet: str, wanted: Mapping[str, int], moved: Mapping[str, str], epoch: int
    ) -> None:
        """Take in how many replicas each lane is to have: its budget stands by that, however many are left of them.

        Each object shows the epoch, so that a takeover changes every one: what an earlier controller listed is outdated then.
        """
        self._targets[owner, fleet] = LaneTargets.by_labels(wanted, moved, epoch=epoch)

    def targets(self, owner: str, fleet: str) -> LaneTargets | None:
        """Return what was taken in last; None: nothing yet."""
        return self._targets.get((owner, fleet))

    def note_cordoned(self, owner: str, fleet: str, pods: Iterable[Object], cordoned: str) -> None:
        """Say which machines take nothing new while a lane lacks replicas: they may be why."""
        if cordoned and lacks_pods(staying_pods(pods), self._targets.get((owner, fleet))):
            self.warnings.say((owner, fleet), _CORDONED, cordoned)
        else:
            self.warnings.unsay((owner, fleet), _CORDONED)

    async def refuse_strangers(self, owner: str, fleet: str, lanes: Iterable[str]) -> None:
        """Raise ProviderError where something of a lane's names is somebody else's."""
        for lane in sorted(set(lanes)):
            for kind in _KINDS if self._settings.gateway_source else _KINDS[:-1]:
                await self._found(kind, lane_name(owner, fleet, lane), owner)

    async def keep(self, owner: str, fleet: str, *, anchor: Object | None, pods: Collection[Object]) -> None:
        """Have the objects of lanes with pods there and as they should be, those of other lanes removed, and pods in their lanes.

        What fails is logged and tried again: pods are listed all the same.
        """
        if anchor is None or "deletionTimestamp" in anchor["metadata"]:
            return
        try:
            clients, targets = clients_of(self._settings, fleet), self._targets.get((owner, fleet))
            if await self._converge(owner, fleet, _wanted(owner, fleet, anchor, pods, clients, targets)):
                self.warnings.unsay((owner, fleet), _OBJECTS)
            # Pods go to another lane once what guards its pods is there.
            await self._pod_lanes.follow(pods, targets)
        except FleetctlError as exc:
            message = f"Services and budgets of its lanes are not kept as they should be: {exc.message}"
            self.warnings.say((owner, fleet), _OBJECTS, message)

    async def _converge(self, owner: str, fleet: str, wanted: Wanted) -> bool:
        """Look whether all is there, every few seconds and whenever another thing is wanted; return whether it was looked.

        The first failure is raised last.
        """
        key, now_s = (owner, fleet), self._clock.monotonic_s()
        looked_s, kept = self._kept.get(key, (float("-inf"), {}))
        if kept == wanted and now_s - looked_s < _CHECK_EVERY_S:
            return False
        self._kept[key] = (now_s, wanted)
        failures: list[FleetctlError] = []
        for kind in _KINDS:
            of_kind = {name: body for (of, name), body in wanted.items() if of == kind.name}
            try:
                await self._converge_kind(kind, owner, fleet, of_kind)
            except CredentialsError as exc:
                # Whoever wants no policy does not have to be allowed to write one.
                if kind is not _POLICY or of_kind:
                    failures.append(exc)
            except FleetctlError as exc:
                failures.append(exc)
        if failures:
            raise failures[0]
        return True

    async def _converge_kind(self, kind: _ObjectKind, owner: str, fleet: str, wanted: Mapping[str, Object]) -> None:
        labels, place = selector(fleet_labels(owner, fleet)), await self._namespace()
        listing = await self._connection.read(
            kind.api, f"list_namespaced_{kind.verb}", place, label_selector=labels
        )  # fmt: skip
        there = {each["metadata"]["name"]: each for each in listing["items"]}
        of = (owner, fleet)
        for name, body in wanted.items():
            # Without a decision of its own a controller leaves an earlier one's as they are.
            if name not in there or (of in self._targets and not holds(there[name], body)):
                await self._apply(kind, body, of, there.get(name))
        for name, each in there.items():
            if name not in wanted and not self._is_superseded(kind, each, of):
                await self._delete(kind, each)

    def _is_superseded(self, kind: _ObjectKind, there: Object, of: tuple[str, str]) -> bool:
        """Whether a controller under a newer lease has written one: it is left to that, and this is said."""
        targets, epoch, name = self._targets.get(of), epoch_of(there), there["metadata"]["name"]
        if targets is None or epoch <= targets.epoch:
            return False
        why = f"a controller of epoch {epoch} has written it, and this one's is {targets.epoch}"
        self.warnings.say(of, f"{kind.name}/{name}/lease", f"{kind.name} {name} is left as it is: {why}")
        return True

    async def _apply(self, kind: _ObjectKind, body: Object, of: tuple[str, str], there: Object | None) -> None:
        """Apply one over what was listed and nothing else; who else has set a field of ours is named, and overruled."""
        name = body["metadata"]["name"]
        there = there or await self._found(kind, name, of[0])
        if there is not None and self._is_superseded(kind, there, of):
            return
        listed = {"resourceVersion": _NOT_THERE}
        if there is not None:
            listed = {key: there["metadata"][key] for key in ("uid", "resourceVersion")}
        body = {**body, "metadata": {**body["metadata"], **listed}}
        try:
            try:
                await self._patch(kind, body, force=False)
            except FieldConflictError as exc:
                await self._patch(kind, body, force=True)
                message = f"{kind.name} {name} was changed and is set back: {exc.message}"
                self.warnings.say(of, f"{kind.name}/{name}", message)
        except ConflictError:
            self._kept.pop(of, None)  # it is another by now, and looked at anew with the next listing

    async def _patch(self, kind: _ObjectKind, body: Object, *, force: bool) -> None:
        place = (body["metadata"]["name"], await self._namespace())
        await self._connection.change(
            kind.api, f"patch_namespaced_{kind.verb}", *place, body,
            field_manager=MANAGER, force=force, _content_type=_APPLY,
        )  # fmt: skip

    async def _delete(self, kind: _ObjectKind, item: Object) -> None:
        metadata = item["metadata"]
        body = {"preconditions": {key: metadata[key] for key in ("uid", "resourceVersion")}}
        with suppress(NotThereError, ConflictError):  # it has gone meanwhile, or is another by now
            place = (metadata["name"], await self._namespace())
            await self._connection.change(kind.api, f"delete_namespaced_{kind.verb}", *place, body=body)

    async def _found(self, kind: _ObjectKind, name: str, owner: str) -> Object | None:
        """Return the object of this name. Raises ProviderError where it is somebody else's."""
        place = await self._namespace()
        try:
            found = await self._connection.read(kind.api, f"read_namespaced_{kind.verb}", name, place)
        except NotThereError:
            return None
        if not is_owned(found, owner):
            raise ProviderError(
                f"{kind.name} {name} in {place} is somebody else's",
                hint="nothing of it was touched: remove it, or work in another namespace",
            )
        return found

    async def _namespace(self) -> str:
        return await asyncio.to_thread(lambda: self._connection.namespace)


def _wanted(  # what the objects of a lane stand on, each named
    owner: str,
    fleet: str,
    anchor: Object,
    pods: Iterable[Object],
    clients: tuple[Object, ...],
    targets: LaneTargets | None,
) -> Wanted:
    """Return each lane's objects by kind and name; `clients` alone reach its pods, if any are named."""
    staying = staying_pods(pods)
    of_groups = {each["metadata"]["labels"][LANE] for each in staying if group_of(each)}
    found: Wanted = {}
    for lane, count in sorted(pods_wanted(staying, targets).items()):
        chosen = {**fleet_labels(owner, fleet), LANE: lane}
        # The disruption controller counts what maxUnavailable is of by a Deployment or its like, which these pods have not.
        specs = [
            (_SERVICE, kubernetes_objects.service_spec({**chosen, **SERVES}, port=manifest.PORT, is_headless=True)),
            (_BUDGET, kubernetes_objects.budget_spec(chosen, bound={"minAvailable": max(0, count - 1)})),
        ]
        if clients:
            specs.append(
                (
                    _POLICY,
                    kubernetes_objects.policy_spec(chosen, clients, members=chosen if lane in of_groups else None),
                )
            )
        for kind, spec in specs:
            name = lane_name(owner, fleet, lane)
            metadata = {"name": name, "labels": chosen, "ownerReferences": [manifest.reference_to(anchor)]}
            if targets is not None:
                metadata["annotations"] = {EPOCH: str(targets.epoch)}
            found[kind.name, name] = {
                "apiVersion": kind.version, "kind": kind.name, "metadata": metadata, "spec": spec,
            }  # fmt: skip
    return found


def holds(there: object, wanted: object) -> bool:
    """Whether everything that is wanted is there; what the API server and others have added is left."""
    if isinstance(wanted, dict):
        absent = wanted.keys() & {"apiVersion", "kind"}  # of an object in a listing
        return isinstance(there, dict) and all(
            holds(there.get(name), value) for name, value in wanted.items() if name not in absent or name in there
        )
    if isinstance(wanted, list):
        if not isinstance(there, list) or len(there) != len(wanted):
            return False
        return all(holds(have, want) for have, want in zip(there, wanted, strict=True))
    return there == wanted

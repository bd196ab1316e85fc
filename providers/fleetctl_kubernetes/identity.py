"""What makes a pod ours, its labels and its order: kept as they were made, whoever edits them, and taken from nobody else's pod."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fleetctl.errors import CredentialsError, FleetctlError, ProviderError
from fleetctl_kubernetes.connection import ConflictError, NotThereError
from fleetctl_kubernetes.group_members import group_of
from fleetctl_kubernetes.lane_pods import epoch_of
from fleetctl_kubernetes.orders import order_in, order_text
from fleetctl_kubernetes.recent_warnings import RecentWarnings
from fleetctl_kubernetes.settings import LANE, MANAGER, ORDER, REPLICA, SERVES, label_value, pod_name

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from fleetctl.clock import Clock
    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.lane_pods import LaneTargets

Object = dict[str, Any]
Fleet = tuple[str, str]  # owner and name
_APPLY = "application/apply-patch+yaml"


class PodIdentities:
    """The pods of fleets by name; what somebody has taken of a pod's labels is set back, and is no end of its replica."""

    def __init__(self, connection: ClusterConnection, clock: Clock) -> None:
        self._connection = connection
        self._known: dict[Fleet, frozenset[str]] = {}  # names of the last listing
        self.warnings = RecentWarnings(clock)

    async def of_fleet(
        self,
        owner: str,
        fleet: str,
        listed: Iterable[Object],
        *,
        ended: Container[str],
        is_keeper: bool,
        targets: LaneTargets | None = None,
    ) -> dict[str, Object]:
        """Return a fleet's pods by name: of those listed the ones that are ours, and ours that a listing by labels misses.

        `ended` are the names of those on record as ended. `is_keeper`: what was edited is set back; else it is only seen through.
        Pods follow their replicas to other lanes (`PodLanes`), so that any lane of the `targets` is a lawful one.
        """
        found = {pod["metadata"]["name"]: pod for pod in listed if self._is_ours(pod, (owner, fleet))}
        missed = sorted(self._known.get((owner, fleet), frozenset()) - found.keys())
        for each in await asyncio.gather(*(self.still_there(name) for name in missed if name not in ended)):
            if each is not None and "deletionTimestamp" not in each["metadata"]:
                found[each["metadata"]["name"]] = each
        if is_keeper:
            edited = [name for name, pod in found.items() if _lacks(pod, targets)]
            for pod in await asyncio.gather(*(self._set_back(found[name], (owner, fleet), targets) for name in edited)):
                found[pod["metadata"]["name"]] = pod
        self._known[owner, fleet] = frozenset(name for name, pod in found.items() if not group_of(pod))
        return found

    async def still_there(self, name: str) -> Object | None:
        """Return a pod of ours that events or listings show no more, though nobody has deleted it; None: it has gone."""
        try:
            found = await self._connection.read("CoreV1Api", "read_namespaced_pod", name, await self._namespace())
        except ProviderError:
            return None  # it has gone; or where it could not be read the listings say whether it is there
        return {"kind": "Pod", **found} if is_made_by_us(found) else None

    def _is_ours(self, pod: Object, of: Fleet) -> bool:
        """Whether a pod with our labels was made by us: its name follows from its order, and a copy of it has another."""
        name = pod["metadata"]["name"]
        if group_of(pod) or is_made_by_us(pod):
            return True
        self.warnings.say(of, f"identity/{name}", f"pod {name} has our labels and is none of ours: it is left alone")
        return False

    async def _set_back(self, pod: Object, of: Fleet, targets: LaneTargets | None) -> Object:
        """Return a pod with its labels and its order as they were made; as it is where that cannot be had."""
        metadata = pod["metadata"]
        body = {
            "apiVersion": "v1", "kind": "Pod",
            # With its uid an apply makes no pod of one that has gone meanwhile; with its version it undoes nothing that was
            # not seen, as that another controller has moved the pod to another lane.
            "metadata": {
                "name": metadata["name"], "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
                "labels": _lawful(pod, targets), "annotations": {ORDER: order_text(pod)},
            },
        }  # fmt: skip
        what = f"pod {metadata['name']} was changed by {_editors(pod)}: its labels or its order"
        try:
            made = await self._connection.change(
                "CoreV1Api", "patch_namespaced_pod", metadata["name"], metadata["namespace"], body,
                field_manager=MANAGER, force=True, _content_type=_APPLY,
            )  # fmt: skip
        except CredentialsError as exc:
            self.warnings.say(of, f"identity/{metadata['name']}", f"{what}; it is known all the same, {exc.message}")
            return pod
        except (NotThereError, ConflictError):
            return pod  # it has gone meanwhile, or is another by now: the next listing says so
        except FleetctlError as exc:
            self.warnings.say(of, f"identity/{metadata['name']}", f"{what}, and {exc.message}")
            return pod
        self.warnings.say(of, f"identity/{metadata['name']}", f"{what} are set back")
        return {"kind": "Pod", **made}

    async def _namespace(self) -> str:
        return await asyncio.to_thread(lambda: self._connection.namespace)


def is_made_by_us(pod: Object) -> bool:
    """Whether a pod has the one name that a pod of its order can have, whatever has become of its labels."""
    try:
        order = order_in(pod)
    except ProviderError:
        return False
    return bool(pod_name(order.owner, order.token) == pod["metadata"]["name"])


def labels_made(pod: Object) -> dict[str, str]:
    """Return the labels that a pod was made with, its lane's among them, by what nobody can edit of it: its own specification.

    Empty where that does not say, as of a group's pods.
    """
    if group_of(pod):
        return {}
    constraints = pod["spec"].get("topologySpreadConstraints") or ()
    spread: Mapping[str, str] = next((each["labelSelector"]["matchLabels"] for each in constraints), {})
    return {**spread, REPLICA: label_value(order_in(pod).replica_id), **SERVES} if spread else {}


def _lawful(pod: Object, targets: LaneTargets | None) -> dict[str, str]:
    """Return the labels that a pod is to have: as it was made, but for the lane that this or a newer controller has put it in."""
    made, lane = labels_made(pod), (pod["metadata"].get("labels") or {}).get(LANE)
    if made and lane is not None and (targets is None or lane in targets.wanted or epoch_of(pod) > targets.epoch):
        made[LANE] = lane
    return made


def _lacks(pod: Object, targets: LaneTargets | None) -> bool:
    metadata = pod["metadata"]
    made = _lawful(pod, targets)
    if not made or "deletionTimestamp" in metadata:
        return False
    has_order = (metadata.get("annotations") or {}).get(ORDER) == order_text(pod)
    return not (has_order and has_labels(pod, made))


def has_labels(item: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether an object is there and has all of these labels."""
    return item is not None and labels.items() <= (item["metadata"].get("labels") or {}).items()


def _editors(pod: Object) -> str:
    """Return who else has written a pod's metadata, the latest first, as the API server says."""
    written = [
        (each.get("time", ""), each["manager"])
        for each in pod["metadata"].get("managedFields") or ()
        if each.get("manager") != MANAGER and "f:metadata" in (each.get("fieldsV1") or {})
    ]
    return ", ".join(f'"{name}"' for _, name in sorted(written, reverse=True)) or "somebody"

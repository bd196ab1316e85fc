"""Pods follow their replicas to another lane: what selects pods by lane then counts and reaches them where they serve."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fleetctl.errors import CredentialsError, FleetctlError
from fleetctl_kubernetes.group_members import group_of
from fleetctl_kubernetes.identity import labels_made
from fleetctl_kubernetes.lane_pods import epoch_of, staying_pods
from fleetctl_kubernetes.settings import EPOCH, LANE, MANAGER, REPLICA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.lane_pods import LaneTargets

Object = dict[str, Any]
_MAY_NOT_MAX = 1000  # names kept of pods that may not be labelled; beyond it each is tried again


class PodLanes:
    """The label `lane` of pods whose replicas were reassigned. A group's pods keep theirs: its own controller writes it."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self._may_not: set[str] = (
            set()
        )  # names of pods that we were not allowed to label: they are counted for all that

    async def follow(self, pods: Iterable[Object], targets: LaneTargets | None) -> None:
        """Have each pod labelled with the lane that its replica serves by the last decision; without one all stay.

        What is not answered is tried again with the next listing.
        """
        if targets is not None:
            await asyncio.gather(*(self._label(pod, lane, targets.epoch) for pod, lane in _astray(pods, targets)))

    async def _label(self, pod: Object, lane: str, epoch: int) -> None:
        metadata = pod["metadata"]
        if metadata["name"] in self._may_not:
            return
        # With its uid no pod is meant that has come in its place, and with its version none that another controller, or anybody
        # else, has written since it was listed: a 409 is looked at anew with the next listing.
        listed = {key: metadata[key] for key in ("uid", "resourceVersion")}
        body = {"metadata": {**listed, "labels": {LANE: lane}, "annotations": {EPOCH: str(epoch)}}}
        try:
            await self._connection.change(
                "CoreV1Api",
                "patch_namespaced_pod",
                metadata["name"],
                metadata["namespace"],
                body,
                field_manager=MANAGER,
            )
        except CredentialsError:
            if len(self._may_not) >= _MAY_NOT_MAX:
                self._may_not.clear()
            self._may_not.add(metadata["name"])
        except FleetctlError:
            return  # it has changed or gone, or the API server has: listings say so


def _astray(pods: Iterable[Object], targets: LaneTargets) -> Iterator[tuple[Object, str]]:
    """Yield pods with the label of another lane than their replica's, and that lane; none that a newer lease has moved."""
    for pod in staying_pods(pods):
        made = labels_made(pod)
        if not made or group_of(pod) or epoch_of(pod) > targets.epoch:
            continue
        lane = targets.moved.get(made[REPLICA], made[LANE])
        if pod["metadata"]["labels"][LANE] != lane:
            yield pod, lane

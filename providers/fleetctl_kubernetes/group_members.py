"""The pods of a replica over several nodes: what is ordered, and what they are together. Values in, values out."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleetctl.model.node import Node, NodeState
from fleetctl_kubernetes import manifest
from fleetctl_kubernetes.orders import (
    STOPPED,
    EndRecord,
    PodOrder,
    instant,
    node_of as node_of_pod,
    node_of_order,
    order_in,
)
from fleetctl_kubernetes.pod_ends import ended_how, exit_reason, pod_end
from fleetctl_kubernetes.settings import ORDER, SERVES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from fleetctl.model.node import NodeRequest, Notice

__all__ = ["STOPPED"]
Object = dict[str, Any]
GROUP, VERSION, PLURAL = "leaderworkerset.x-k8s.io", "v1", "leaderworkersets"
NAME = "leaderworkerset.sigs.k8s.io/name"  # of the set, on its pods
_SIZE = "leaderworkerset.sigs.k8s.io/size"


def group_of(pod: Object) -> str:
    """Return the name of the set that a pod is of; empty: of none."""
    return str((pod["metadata"].get("labels") or {}).get(NAME, ""))


def set_of(request: NodeRequest, pod: Object) -> Object:
    """Return the set of a request, by the pod that it would be on one node."""
    worker = deepcopy(pod)
    for name in SERVES:
        del worker["metadata"]["labels"][name]
    (container,) = worker["spec"]["containers"]
    for name in ("ports", "startupProbe", "readinessProbe"):  # it answers nobody but its leader
        container.pop(name, None)
    container |= manifest.member_command(request, container)
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "LeaderWorkerSet",
        "metadata": {
            **pod["metadata"],
            "labels": {name: value for name, value in pod["metadata"]["labels"].items() if name not in SERVES},
        },
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {
                "size": request.node_count,
                # While no controller looks, a group that has lost a pod is made anew as a whole, or its ranks never meet.
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": _template(pod),
                "workerTemplate": _template(worker),
            },
        },
    }


def _template(pod: Object) -> Object:
    metadata = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    # Sets of pods take no other policy; whoever keeps the fleet ends a group at the first restart.
    return {"metadata": metadata, "spec": {**pod["spec"], "restartPolicy": "Always"}}


def node_of(
    name: str,
    group: Object | None,
    pods: list[Object],
    *,
    record: EndRecord | None,
    notices: Mapping[str, Notice],
) -> Node:
    """Return a group as the node of its leader; `record`: of one that is ended, or was."""
    size = _size(group, pods)
    leader = next((each for each in pods if each["metadata"]["name"] == f"{name}-0"), None)
    node = replace(
        node_of_order(_order(group, pods), created_at=instant(_first_of(group, pods)["metadata"]["creationTimestamp"])),
        machine_id=f"{name}-0",
        members=tuple(f"{name}-0-{rank}" for rank in range(1, size)),
        # Before the others are there it is no engine yet, whoever listens.
        host=(leader or {}).get("status", {}).get("podIP", "") if len(pods) == size else "",
    )
    each_pods = [node_of_pod(each, record=None, notices=notices) for each in pods]
    notice = next((each.notice for each in each_pods if each.notice is not None), None)
    if record is not None or (group is None or "deletionTimestamp" in group["metadata"]):
        is_ours = record is not None and record.exit_reason == STOPPED
        return replace(node, state=NodeState.STOPPING, notice=None if is_ours else notice)
    if len(pods) == size and all(each.state is NodeState.RUNNING for each in each_pods):
        return replace(node, state=NodeState.RUNNING, notice=notice)
    waiting = next((each for each in each_pods if each.pending_reason), None)
    late = waiting or next(
        (each for each in each_pods if each.boot is not None and each.state is not NodeState.RUNNING), None
    )
    reason, boot = (late.pending_reason, late.boot) if late is not None else ("", None)
    return replace(node, notice=notice, pending_reason=reason, boot=boot)


def fault_of(name: str, first: Mapping[str, str], pods: list[Object]) -> str:
    """Return how a group ended, by the first of its pods that is not as it was: which member, and how; empty: it lives.

    `first` has the uids it was seen with. One that was told to end may be so because of another that has gone already.
    """
    there = {each["metadata"]["name"]: each for each in pods}
    # What has gone or was made anew comes before what ends because of it.
    for pod_name in sorted(first):
        pod = there.get(pod_name)
        if pod is None or pod["metadata"]["uid"] != first[pod_name]:
            return _named_reason(name, pod_name, "deleted")
    for pod_name, pod in sorted(there.items()):
        if how := exit_reason(pod) or _restarted(pod):
            return _named_reason(name, pod_name, how)
    for pod_name, pod in sorted(there.items(), reverse=True):  # a leader is told to end with its members
        if "deletionTimestamp" in pod["metadata"]:
            return _named_reason(name, pod_name, pod_end(pod))
    return ""


def end_record(group: Object | None, pods: list[Object], *, reason: str, now: datetime) -> EndRecord:
    """Return what is remembered of a group."""
    leader = next((each for each in pods if "podIP" in each.get("status", {})), {})
    return EndRecord(
        order=_order(group, pods),
        host=leader.get("status", {}).get("podIP", ""),
        created_at=instant(_first_of(group, pods)["metadata"]["creationTimestamp"]),
        ended_at=now,
        exit_reason=reason,
    )


def _named_reason(name: str, pod_name: str, how: str) -> str:
    return how if pod_name == f"{name}-0" else f"{pod_name}: {how}"


def _restarted(pod: Object) -> str:
    for container in pod.get("status", {}).get("containerStatuses") or ():
        if container.get("restartCount"):
            ended = (container.get("lastState") or {}).get("terminated") or {}
            return ended_how(pod, ended) if ended else "exit ?"
    return ""


def _order(group: Object | None, pods: list[Object]) -> PodOrder:
    return order_in(_first_of(group, pods))


def _first_of(group: Object | None, pods: list[Object]) -> Object:
    if group is not None and ORDER in (group["metadata"].get("annotations") or {}):
        return group
    return min(pods, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))


def size_of(pod: Object) -> int:
    """Return how many pods there are of a pod's replica once it is whole."""
    return int((pod["metadata"].get("annotations") or {}).get(_SIZE, 1))


def _size(group: Object | None, pods: list[Object]) -> int:
    if group is not None:
        return int(group["spec"]["leaderWorkerTemplate"]["size"])
    return int((pods[0]["metadata"].get("annotations") or {}).get(_SIZE, len(pods)))

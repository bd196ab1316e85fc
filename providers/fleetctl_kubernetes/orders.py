"""Pods as the nodes that they are to fleetctl, and the records of those that have gone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl import codec
from fleetctl.errors import ProviderError
from fleetctl.model.catalogue import Market
from fleetctl.model.node import BootProgress, Node, NodeState, Notice, NoticeKind
from fleetctl_kubernetes.settings import ORDER, pod_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.node import NodeRequest

Object = dict[str, Any]
STOPPED = "stopped"
_TEXT_MAX = 160
_NOT_YET = {"ContainerCreating", "PodInitializing"}  # the usual beginning, no reason to worry
_SIGNALS = 128  # a container's exit code is this and the signal that ended it


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOrder:
    """What is kept of an order in its pod's annotation."""

    token: str
    owner: str
    fleet: str
    replica_id: str
    market: Market
    offering: str
    port: int

    def belongs_to(self, request: NodeRequest) -> bool:
        """Whether it is this request's, and not another's with the same token."""
        mine = (request.token, request.owner, request.fleet, request.replica_id)
        return (self.token, self.owner, self.fleet, self.replica_id) == mine


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRecord:
    """What is remembered of a pod that was stopped, as its fleet's ConfigMap keeps it."""

    order: PodOrder
    host: str
    created_at: datetime
    ended_at: datetime
    exit_reason: str

    def node(self, state: NodeState = NodeState.GONE) -> Node:
        """Return the node that has ended."""
        return replace(
            node_of_order(self.order, self.created_at), state=state, host=self.host, exit_reason=self.exit_reason
        )  # fmt: skip


def order_in(pod: Object) -> PodOrder:
    """Return the order of a pod of ours. Raises ProviderError where somebody has changed it."""
    try:
        return _order(pod["metadata"]["annotations"][ORDER])
    except (KeyError, msgspec.DecodeError, AttributeError) as exc:
        raise ProviderError(
            f"pod {pod['metadata']['name']} has no order of ours any longer: {exc}",
            hint=f"its annotation {ORDER} was changed: delete the pod",
        ) from exc


# Read of every pod once a second; an order never changes.
@lru_cache(maxsize=4096)
def _order(text: str) -> PodOrder:
    return codec.decode(PodOrder, text.encode())


def node_of(pod: Object, *, record: EndRecord | None, notices: Mapping[str, Notice]) -> Node:
    """Return a pod as a node. `record`: of one that we have ended ourselves; `notices` are of the machines, by name."""
    status, metadata = pod.get("status", {}), pod["metadata"]
    machine = pod["spec"].get("nodeName", "")
    node = replace(
        node_of_order(order_in(pod), instant(metadata["creationTimestamp"])),
        host=status.get("podIP", ""),
        machine_id=machine,
        state=_state(pod),
    )
    if node.state is NodeState.GONE:
        if record is not None:
            return replace(node, exit_reason=record.exit_reason)
        if "deletionTimestamp" in metadata:
            return gone_node(pod)
        return replace(node, exit_reason=exit_reason(pod), log_tail=_last_words(pod))
    notice = _deletion(metadata) if record is None else None
    node = replace(node, notice=notice or notices.get(machine))
    if node.state is NodeState.STARTING:
        return replace(node, pending_reason=_pending(status), boot=_boot(pod))
    return node


def gone_node(pod: Object) -> Node:
    """Return the node of a pod that somebody else has deleted: who, as far as the API server says."""
    # What an engine ends with that got SIGTERM says nothing of why it got it.
    return replace(
        node_of_order(order_in(pod), instant(pod["metadata"]["creationTimestamp"])),
        host=pod.get("status", {}).get("podIP", ""),
        machine_id=pod["spec"].get("nodeName", ""),
        state=NodeState.GONE,
        exit_reason=pod_end(pod),
    )


def pod_end(pod: Object) -> str:
    """Return why somebody else has deleted a pod, as far as the API server says: "EvictionByEvictionAPI", else "deleted"."""
    conditions = pod.get("status", {}).get("conditions") or ()
    taken = next((each.get("reason", "") for each in conditions if each["type"] == "DisruptionTarget"), "")
    return taken or "deleted"


def exit_reason(pod: Object) -> str:
    """Return how a pod ended by itself: "exit 1", "signal 9", "OOMKilled", "Evicted"; empty while it has not."""
    status = pod.get("status", {})
    if status.get("phase") not in ("Failed", "Succeeded"):
        return ""
    ended = _terminated(status)
    code, reason = ended.get("exitCode", 0), ended.get("reason", "")
    if status.get("reason") or reason not in ("", "Error", "Completed"):
        return str(status.get("reason") or reason)
    return f"signal {code - _SIGNALS}" if code > _SIGNALS else f"exit {code}"


def instant(text: str) -> datetime:
    """Return an instant as the API server writes it."""
    return datetime.fromisoformat(text)


def node_of_order(order: PodOrder, created_at: datetime) -> Node:
    """Return the node of an order, of which nothing else is known."""
    return Node(
        id=pod_name(order.owner, order.token),
        token=order.token,
        owner=order.owner,
        fleet=order.fleet,
        replica_id=order.replica_id,
        state=NodeState.STARTING,
        market=order.market,
        host="",
        port=order.port,
        created_at=created_at,
        offering=order.offering,
    )


def _state(pod: Object) -> NodeState:
    phase = pod.get("status", {}).get("phase", "Pending")
    if phase in ("Failed", "Succeeded"):
        return NodeState.GONE
    if "deletionTimestamp" in pod["metadata"]:
        return NodeState.STOPPING
    return NodeState.RUNNING if phase == "Running" else NodeState.STARTING


def _deletion(metadata: Object) -> Notice | None:
    """Return the notice of a pod that somebody else deletes: an eviction, a drain, a preemption."""
    if "deletionTimestamp" not in metadata:
        return None
    return Notice(kind=NoticeKind.INTERRUPTION, deadline=instant(metadata["deletionTimestamp"]), is_certain=True)


def _pending(status: Object) -> str:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return _text(condition)
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason", "") not in _NOT_YET:
            return _text(waiting)
    return ""


def _text(state: Object) -> str:
    reason, message = state.get("reason", "not said"), state.get("message", "")
    return f"{reason}: {message}"[:_TEXT_MAX] if message else str(reason)


def _boot(pod: Object) -> BootProgress:
    if not pod["spec"].get("nodeName"):
        return BootProgress(phase="scheduling")
    return BootProgress(phase="image" if not pod.get("status", {}).get("podIP") else "starting")


def _terminated(status: Object) -> Object:
    for container in status.get("containerStatuses") or ():
        ended: Object | None = (container.get("state") or {}).get("terminated")
        if ended:
            return ended
    return {}


def _last_words(pod: Object) -> str:
    """Return the end of the container's log, which kubelet keeps of those that failed."""
    return str(_terminated(pod.get("status", {})).get("message", ""))

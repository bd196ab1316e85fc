"""Pods as the nodes that they are to fleetctl, and the records of those that have gone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl import codec
from fleetctl.errors import ConfigError, ProviderError
from fleetctl.model.boot import LOADING, BootStep
from fleetctl.model.catalogue import Market
from fleetctl.model.node import BootProgress, Node, NodeState, Notice, NoticeKind
from fleetctl.printable import shortened
from fleetctl_kubernetes.pod_ends import exit_reason, is_preempted, pod_end, taken_by, taker_of, terminated
from fleetctl_kubernetes.settings import INTERRUPTION, ORDER, ORDER_VARIABLE, pod_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleetctl.model.node import NodeRequest

Object = dict[str, Any]
STOPPED, INTERRUPTED = "stopped", "interrupted"  # exit reasons of ends that were asked for
ENDED = ("Failed", "Succeeded")  # phases, of pods that have ended by themselves
_TEXT_MAX = 600  # the scheduler counts its machines by what keeps a pod off them
_NOT_YET = {"ContainerCreating", "PodInitializing"}  # the usual beginning, no reason to worry


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
            node_of_order(self.order, self.created_at), state=state, host=self.host, exit_reason=self.exit_reason,
            taken_by=taker_of(self.exit_reason),
        )  # fmt: skip


def check_request(request: NodeRequest) -> None:
    """Raise ProviderError or ConfigError for an order that no pod can be made for."""
    if request.node_count > 1 and not request.member_argv:
        raise ProviderError(
            f"{request.replica_id} spans {request.node_count} nodes, and its engine has no command for the others",
            hint="leave launch.pipeline_parallel out of the profile",
        )
    if not request.argv:
        raise ConfigError(f"{request.replica_id} has no command", hint="this is a bug in fleetctl; please report it")


def token_taken(request: NodeRequest, other: str) -> ProviderError:
    """Return what is wrong with an order whose token another replica has."""
    return ProviderError(f"token {request.token} belongs to {other}, not to {request.replica_id}")


def order_in(pod: Object) -> PodOrder:
    """Return the order of a pod of ours. Raises ProviderError where it has none that can be read."""
    try:
        return _order(order_text(pod))
    except (KeyError, TypeError, msgspec.DecodeError, AttributeError) as exc:
        raise ProviderError(
            f"pod {pod['metadata']['name']} has no order of ours any longer: {exc}",
            hint=f"its annotation {ORDER} was changed: delete the pod",
        ) from exc


def order_text(pod: Object) -> str:
    """Return an order as it was written: by the container's variables, which nobody can edit, else by the annotation.

    Raises KeyError where there is neither.
    """
    for container in pod.get("spec", {}).get("containers") or ():
        for variable in container.get("env") or ():
            if variable["name"] == ORDER_VARIABLE:
                return str(variable["value"]).replace("$$", "$")
    text: str = pod["metadata"]["annotations"][ORDER]
    return text


# Read of every pod once a second; an order never changes.
@lru_cache(maxsize=4096)
def _order(text: str) -> PodOrder:
    return codec.decode(PodOrder, text.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionMark:
    """What is kept of a drill in its pod's annotation."""

    deadline: datetime  # when the pod is taken
    uid: str  # of the pod that is meant: one that is made with the same annotations, as from a backup, is not


def interrupted_at(pod: Object) -> datetime | None:
    """Return when a pod of ours is taken for a drill; None: it stays. Only spot pods are, whoever wrote the mark."""
    text = (pod["metadata"].get("annotations") or {}).get(INTERRUPTION)
    if text is None:
        return None
    try:
        mark = codec.decode(InterruptionMark, text.encode())
        is_meant = mark.uid == pod["metadata"]["uid"] and order_in(pod).market is Market.SPOT
    except (msgspec.DecodeError, ProviderError):
        return None
    return mark.deadline if is_meant else None


def is_due(pod: Object, now: datetime) -> bool:
    """Whether a drill takes a pod now, its notice being over; one that has ended by itself is not taken."""
    deadline = interrupted_at(pod)
    return deadline is not None and deadline <= now and pod.get("status", {}).get("phase") not in ENDED


def asked_end(pods: Iterable[Object], now: datetime) -> str:
    """Return the exit reason of a replica's pods that we end now."""
    return INTERRUPTED if any(is_due(pod, now) for pod in pods) else STOPPED


def node_of(
    pod: Object,
    *,
    record: EndRecord | None,
    notices: Mapping[str, Notice],
    takers: Mapping[str, str] = MappingProxyType({}),
) -> Node:
    """Return a pod as a node. `record`: of one that we have ended ourselves; `notices` are of the machines, by name.

    `takers` are for whom pods are preempted, by the machine.
    """
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
        return replace(node, exit_reason=exit_reason(pod), taken_by=taken_by(pod), log_tail=_last_words(pod))
    notice = _deletion(pod, takers) if record is None else None
    node = replace(node, notice=_with_drill(pod, notice or notices.get(machine)))
    if node.state is NodeState.STARTING:
        return replace(node, pending_reason=_pending(status), boot=_boot(pod))
    return replace(node, boot=_boot(pod)) if node.state is NodeState.RUNNING else node


def gone_node(pod: Object) -> Node:
    """Return the node of a pod that somebody else has deleted: who, as far as the API server says."""
    # What an engine ends with that got SIGTERM says nothing of why it got it.
    return replace(
        node_of_order(order_in(pod), instant(pod["metadata"]["creationTimestamp"])),
        host=pod.get("status", {}).get("podIP", ""),
        machine_id=pod["spec"].get("nodeName", ""),
        state=NodeState.GONE,
        exit_reason=pod_end(pod),
        taken_by=taken_by(pod),
    )


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
    if phase in ENDED:
        return NodeState.GONE
    if "deletionTimestamp" in pod["metadata"]:
        return NodeState.STOPPING
    return NodeState.RUNNING if phase == "Running" else NodeState.STARTING


def _deletion(pod: Object, takers: Mapping[str, str]) -> Notice | None:
    """Return the notice of a pod that somebody else deletes: an eviction, a drain, a preemption."""
    if "deletionTimestamp" not in pod["metadata"]:
        return None
    deadline = instant(pod["metadata"]["deletionTimestamp"])
    if is_preempted(pod):
        taker = takers.get(pod["spec"].get("nodeName", ""), "a pod of higher priority")
        return Notice(kind=NoticeKind.PREEMPTION, deadline=deadline, is_certain=True, taker=taker)
    return Notice(kind=NoticeKind.INTERRUPTION, deadline=deadline, is_certain=True, taken_by=taken_by(pod))


def _with_drill(pod: Object, known: Notice | None) -> Notice | None:
    """Return a pod's notice: what is said of it and of its machine, unless a drill takes it sooner."""
    deadline = interrupted_at(pod)
    if deadline is None or (known is not None and known.takes_node and (known.deadline or deadline) <= deadline):
        return known
    return Notice(kind=NoticeKind.INTERRUPTION, deadline=deadline, is_certain=True)


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
    return shortened(f"{reason}: {message}" if message else str(reason), _TEXT_MAX)


def _boot(pod: Object) -> BootProgress:
    """Return how far a pod's start is; the API server says since when it has been scheduled, and its engine runs."""
    status = pod.get("status", {})
    steps = [BootStep(phase="scheduling", began_at=instant(pod["metadata"]["creationTimestamp"]))]
    if not pod["spec"].get("nodeName"):
        return BootProgress(phase="scheduling", steps=tuple(steps))
    conditions = status.get("conditions") or ()
    scheduled: Object = next((c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "True"), {})
    if scheduled.get("lastTransitionTime"):
        steps.append(BootStep(phase="image", began_at=instant(scheduled["lastTransitionTime"])))
    states = [(each.get("state") or {}).get("running") or {} for each in status.get("containerStatuses") or ()]
    begun = [instant(each["startedAt"]) for each in states if each.get("startedAt")]
    if not begun:
        return BootProgress(phase="image", steps=tuple(steps) if len(steps) > 1 else ())
    return BootProgress(phase=LOADING, steps=(*steps, BootStep(phase=LOADING, began_at=max(begun))))


def _last_words(pod: Object) -> str:
    """Return the end of the container's log, which kubelet keeps of those that failed."""
    return str(terminated(pod.get("status", {})).get("message", ""))

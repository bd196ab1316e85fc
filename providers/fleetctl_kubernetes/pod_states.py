"""Why a pod of a fleet's own does not run: in Kubernetes' words, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl_kubernetes.pod_security import POD_SECURITY, POD_SECURITY_HINT

if TYPE_CHECKING:
    from fleetctl_kubernetes.connection import ClusterConnection

Object = dict[str, Any]
_MESSAGE_MAX = 400
_EVENTS_MAX = 50
# Reasons that say nothing but that a container has not come so far: events do.
_ON_ITS_WAY = ("ContainerCreating", "PodInitializing")
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTrouble:
    """What keeps a pod from running; `is_certain` where somebody has to do something about it."""

    text: str
    hint: str
    is_certain: bool = True


def pod_trouble(pod: Object) -> PodTrouble:
    """Return what a pod waits for by its own status."""
    status, metadata = pod.get("status", {}), pod["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if not waiting:
            continue
        reason, ended = waiting.get("reason", "waits"), (container.get("lastState") or {}).get("terminated") or {}
        why = (ended.get("message") or waiting.get("message") or "").strip()[-_MESSAGE_MAX:]
        text = f"pod {name}: {reason}" + (f": {why}" if why else "")
        return PodTrouble(
            text=text, hint=_hint(reason, container, name, namespace), is_certain=reason not in _ON_ITS_WAY
        )
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") != "True":
            reason = condition.get("reason", "Pending")
            hint = f"give the cluster a node that has room for it: kubectl describe pod -n {namespace} {name}"
            return PodTrouble(text=f"pod {name}: {reason}: {condition.get('message', '')}", hint=hint)
    text = f"pod {name}: {status.get('phase', 'Pending')}, and its controller does not answer"
    return PodTrouble(text=text, hint=f"kubectl logs -n {namespace} {name}", is_certain=False)


def refusal(deployment: Object) -> PodTrouble | None:
    """Return why no pod of a Deployment is made; None: they are, as far as it says."""
    name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
    for condition in deployment.get("status", {}).get("conditions") or ():
        if (condition.get("type"), condition.get("status")) == ("ReplicaFailure", "True"):
            message = str(condition.get("message", ""))[:_MESSAGE_MAX]
            hint = f"kubectl describe replicaset -n {namespace} | less"
            if POD_SECURITY in message:
                hint = POD_SECURITY_HINT
            elif "exceeded quota" in message:
                hint = f"raise it, or make room: kubectl describe resourcequota -n {namespace}"
            return PodTrouble(text=f"no pod of Deployment {name} is made: {message}", hint=hint)
    return None


def last_warning(connection: ClusterConnection, pod: Object) -> str:
    """Return the last Warning that was said of a pod, as that a volume's Secret is not there; empty: none. Raises ProviderError."""
    metadata = pod["metadata"]
    selected = f"involvedObject.uid={metadata['uid']},type=Warning"
    found = connection.call(
        "CoreV1Api", "list_namespaced_event", metadata["namespace"], field_selector=selected, limit=_EVENTS_MAX
    )
    events = sorted(found.get("items") or (), key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime")))
    return f"{events[-1].get('reason', '')}: {events[-1].get('message', '')}"[:_MESSAGE_MAX] if events else ""


def _hint(reason: str, container: Object, name: str, namespace: str) -> str:
    if reason in _IMAGE:
        return (
            f"see that {container.get('image', 'its image')} exists, and that nodes may pull it: host.image, and "
            "host.image_pull_secrets for a registry that wants credentials"
        )
    if reason == "CrashLoopBackOff":
        return f"what it wrote: kubectl logs -n {namespace} {name} --previous"
    return f"kubectl describe pod -n {namespace} {name}"

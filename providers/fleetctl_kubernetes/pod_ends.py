"""How pods end: by their engine, or taken by somebody else, and by whom, as the API server says it."""

from __future__ import annotations

import re
from typing import Any

from fleetctl.printable import shortened
from fleetctl.units import format_bytes

Object = dict[str, Any]
_OOM = "OOMKilled"
_SIGNALS = 128  # a container's exit code is this and the signal that ended it
_MESSAGE_MAX = 160
_DELETED = "deleted"
_PREEMPTED = "PreemptionByScheduler"
_BY_KUBELET = "TerminationByKubelet"
# Who takes a pod, by the reason of its condition DisruptionTarget (kubernetes.io/docs/concepts/workloads/pods/disruptions). A
# container that goes beyond a limit of its own has no such condition.
_TAKERS = {
    "EvictionByEvictionAPI": "the eviction API, as kubectl drain, autoscalers and Karpenter use it",
    _PREEMPTED: "the scheduler, for a pod of higher priority",
    "DeletionByTaintManager": "the taint manager: its machine has a NoExecute taint that it does not tolerate",
    "DeletionByDeviceTaintManager": "the device taint manager: its GPU has a NoExecute taint that it does not tolerate",
    "DeletionByPodGC": "the pod garbage collector: its machine is gone",
    _BY_KUBELET: "kubelet: its machine runs short, or shuts down",
}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|[kMGTPE]|[KMGTPE]i)?")
_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3} | {
    f"{unit}{binary}": (1024.0 if binary else 1000.0) ** power
    for power, unit in enumerate("KMGTPE", start=1)
    for binary in ("", "i")
}


def exit_reason(pod: Object) -> str:
    """Return how a pod ended by itself: "exit 1", "signal 9", "OOMKilled, limit 16GiB", "Evicted (of what there was too little)".

    Empty while it has not.
    """
    status = pod.get("status", {})
    if status.get("phase") not in ("Failed", "Succeeded"):
        return ""
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    if reason and message:
        return f"{reason} ({shortened(message, _MESSAGE_MAX)})"
    return reason or ended_how(pod, terminated(status))


def ended_how(pod: Object, ended: Object) -> str:
    """Return how a container ended, by its state `terminated`."""
    code, reason = ended.get("exitCode", 0), ended.get("reason", "")
    if reason == _OOM:
        return f"{_OOM}, {_memory_limit(pod)}"
    if reason not in ("", "Error", "Completed"):
        return str(reason)
    return f"signal {code - _SIGNALS}" if code > _SIGNALS else f"exit {code}"


def terminated(status: Object) -> Object:
    """Return the end of the first container that has ended; empty: none has."""
    for container in status.get("containerStatuses") or ():
        ended: Object | None = (container.get("state") or {}).get("terminated")
        if ended:
            return ended
    return {}


def pod_end(pod: Object) -> str:
    """Return why somebody else has deleted a pod, as far as the API server says: "EvictionByEvictionAPI", else "deleted"."""
    return str(_disruption(pod).get("reason", "")) or _DELETED


def is_preempted(pod: Object) -> bool:
    """Whether the scheduler has ended a pod to make room for another."""
    return pod_end(pod) == _PREEMPTED


def taken_by(pod: Object) -> str:
    """Return who takes a pod from its engine, which works; empty: nobody, or it is not said."""
    condition = _disruption(pod)
    taker, message = taker_of(str(condition.get("reason", ""))), str(condition.get("message", ""))
    # Only kubelet's says more than the reason: of what its machine has too little.
    has_detail = condition.get("reason") == _BY_KUBELET and message
    return f"{taker} ({shortened(message, _MESSAGE_MAX)})" if has_detail else taker


def taker_of(how: str) -> str:
    """Return who has taken a pod or a member of a group that ended so; empty: nobody that is known."""
    reason = how.rpartition(": ")[2]
    return _TAKERS.get(reason, f"the cluster ({reason})" if reason.startswith("DeletionBy") else "")


def _disruption(pod: Object) -> Object:
    for each in pod.get("status", {}).get("conditions") or ():
        if each["type"] == "DisruptionTarget" and each.get("status", "True") == "True":
            return dict(each)
    return {}


def _memory_limit(pod: Object) -> str:
    limits = [(each.get("resources") or {}).get("limits") or {} for each in pod["spec"]["containers"][:1]]
    given = str(limits[0].get("memory", "")) if limits else ""
    found = _QUANTITY.fullmatch(given)
    if found is None:
        return f"limit {given}" if given else "no limit of its own"
    return f"limit {format_bytes(float(found[1]) * _UNITS[found[2] or ''])}"

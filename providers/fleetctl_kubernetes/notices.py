"""Which nodes of a cluster are about to leave, by the taints and conditions that clouds and autoscalers put on them."""

from __future__ import annotations

from typing import Any

from fleetctl.model.node import Notice, NoticeKind

Object = dict[str, Any]

_TAINTS = {
    "karpenter.sh/disrupted": (NoticeKind.INTERRUPTION, True),
    "karpenter.sh/disruption": (NoticeKind.INTERRUPTION, True),
    "aws-node-termination-handler/spot-itn": (NoticeKind.INTERRUPTION, True),
    "aws-node-termination-handler/asg-lifecycle-termination": (NoticeKind.INTERRUPTION, True),
    "aws-node-termination-handler/rebalance-recommendation": (NoticeKind.REBALANCE, False),
    "aws-node-termination-handler/scheduled-maintenance": (NoticeKind.MAINTENANCE, False),
    "remediator.kubernetes.azure.com/unschedulable": (NoticeKind.INTERRUPTION, True),
    "remediator.aks.microsoft.com/unschedulable": (NoticeKind.INTERRUPTION, True),
    "cloud.google.com/impending-node-termination": (NoticeKind.INTERRUPTION, True),
    "ToBeDeletedByClusterAutoscaler": (NoticeKind.INTERRUPTION, True),
    "node.kubernetes.io/out-of-service": (NoticeKind.INTERRUPTION, True),
    "node.kubernetes.io/not-ready": (NoticeKind.NOT_READY, False),
    "node.kubernetes.io/unreachable": (NoticeKind.NOT_READY, False),
}
_CONDITIONS = {"PreemptScheduled": (NoticeKind.INTERRUPTION, True), "FreezeScheduled": (NoticeKind.MAINTENANCE, False)}
_RANK = (NoticeKind.INTERRUPTION, NoticeKind.MAINTENANCE, NoticeKind.REBALANCE, NoticeKind.NOT_READY)


def notice_of(node: Object) -> Notice | None:
    """Return the gravest thing that is said of a node; None: it stays. None of them says when it is taken."""
    taints = [each["key"] for each in node.get("spec", {}).get("taints") or ()]
    conditions = [
        each["type"] for each in node.get("status", {}).get("conditions") or () if each.get("status") == "True"
    ]
    found = [_TAINTS[key] for key in taints if key in _TAINTS]
    found += [_CONDITIONS[kind] for kind in conditions if kind in _CONDITIONS]
    if not found:
        return None
    kind, is_certain = min(found, key=lambda each: _RANK.index(each[0]))
    return Notice(kind=kind, deadline=None, is_certain=is_certain)


def is_leaving(node: Object) -> bool:
    """Whether nothing new is to be planned on a node."""
    return bool(node.get("spec", {}).get("unschedulable")) or notice_of(node) is not None

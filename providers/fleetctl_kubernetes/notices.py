"""Which nodes of a cluster are about to leave, by the taints and conditions that clouds and autoscalers put on them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from fleetctl.catalogue import kubernetes_nodes
from fleetctl.model.catalogue import Market
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
# What follows a cloud's spot notice, and nothing else: the node is there for as long as that cloud's notice lasts.
_SPOT_NOTICES = frozenset(
    {
        "karpenter.sh/disrupted", "karpenter.sh/disruption", "aws-node-termination-handler/spot-itn",
        "remediator.kubernetes.azure.com/unschedulable", "remediator.aks.microsoft.com/unschedulable",
        "cloud.google.com/impending-node-termination", "PreemptScheduled",
    }
)  # fmt: skip
_RANK = (NoticeKind.INTERRUPTION, NoticeKind.MAINTENANCE, NoticeKind.REBALANCE, NoticeKind.NOT_READY)


def notice_of(node: Object) -> Notice | None:
    """Return the gravest thing that is said of a node; None: it stays.

    Its deadline is the end of the spot notice of the node's cloud, counted from when the taint or condition was set; None
    where nothing says when that was, or how long the node stays.
    """
    taints = [each for each in node.get("spec", {}).get("taints") or () if each["key"] in _TAINTS]
    conditions = [
        each
        for each in node.get("status", {}).get("conditions") or ()
        if each["type"] in _CONDITIONS and each.get("status") == "True"
    ]
    found = [(_TAINTS[each["key"]], each["key"]) for each in taints]
    found += [(_CONDITIONS[each["type"]], each["type"]) for each in conditions]
    if not found:
        return None
    kind, is_certain = min((what for what, _ in found), key=lambda each: _RANK.index(each[0]))
    if kind is not NoticeKind.INTERRUPTION:
        return Notice(kind=kind, deadline=None, is_certain=is_certain)
    interruptions = {name for what, name in found if what[0] is kind}
    # One that says no more than that the node goes may mean now.
    is_spots = interruptions <= _SPOT_NOTICES
    return Notice(kind=kind, deadline=_taken_at(node, taints, conditions) if is_spots else None, is_certain=is_certain)


def _taken_at(node: Object, taints: list[Object], conditions: list[Object]) -> datetime | None:
    """Return when a spot node is taken; the earliest of its notices counts."""
    market, notice_s = kubernetes_nodes.market_of(node.get("metadata", {}).get("labels") or {})
    since = [_tainted_at(node, each) for each in taints if each["key"] in _SPOT_NOTICES]
    since += [_instant(each.get("lastTransitionTime")) for each in conditions if each["type"] in _SPOT_NOTICES]
    known = [at for at in since if at is not None]
    if market is not Market.SPOT or len(known) < len(since):
        return None
    return min(known) + timedelta(seconds=notice_s)


def _tainted_at(node: Object, taint: Object) -> datetime | None:
    """Return when a node was tainted: `timeAdded` where it is kept (of NoExecute), else when a field manager last wrote taints."""
    if taint.get("timeAdded"):
        return _instant(taint["timeAdded"])
    written = [
        at
        for each in node.get("metadata", {}).get("managedFields") or ()
        if "f:taints" in (each.get("fieldsV1") or {}).get("f:spec", {})
        if (at := _instant(each.get("time"))) is not None
    ]
    return max(written, default=None)


def _instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def is_leaving(node: Object) -> bool:
    """Whether nothing new is to be planned on a node."""
    return bool(node.get("spec", {}).get("unschedulable")) or notice_of(node) is not None

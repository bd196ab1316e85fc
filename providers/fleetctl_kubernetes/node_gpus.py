"""What of a node's GPUs a replica can have: whole ones that a label names, on a node that takes our pods; the rest, and why not."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.catalogue import kubernetes_nodes
from fleetctl.catalogue.node_gpus import node_gpus
from fleetctl_kubernetes.notices import is_leaving

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Object = dict[str, Any]
_PREFIX = "nvidia.com/"
_SHARED = "nvidia.com/gpu.shared"  # what the device plugin calls a share where it is told to (renameByDefault)
_SHARED_PRODUCT, _MIG_PRODUCT = "-SHARED", "-MIG-"
_VGPU = "nvidia.com/vgpu.present"
_VGPU_PRODUCT = re.compile(r"-\d+[ABCQ]$")  # NVIDIA-A10-4Q: a quarter of a card's memory and less
UNNAMED = f"of nodes of which no label says which GPUs they have ({kubernetes_nodes.PRODUCT} of GPU feature discovery)"
_GPUS, _SLICES, _SHARES = "GPUs", "MIG slices", "shares of GPUs"


class LeftOut(NamedTuple):
    """GPUs that are there, and no replica is planned on."""

    what: str
    why: str
    quantity: int


class UsableGpus(NamedTuple):
    """What a replica can have of a node."""

    product: str  # as an offering is called by
    gpus: int
    left_out: tuple[LeftOut, ...]


def gpus_of(node: Object) -> UsableGpus:
    """Return a node's whole GPUs, and what of it is left out."""
    labels: dict[str, str] = node["metadata"].get("labels") or {}
    allocatable = node.get("status", {}).get("allocatable") or {}
    left_out = [
        LeftOut(_SHARES if name.endswith(".shared") else _SLICES, f"{name}, no whole ones", int(count))
        for name, count in allocatable.items()
        if (name == _SHARED or name.startswith(f"{_PREFIX}mig-")) and int(count)
    ]
    count = int(allocatable.get(kubernetes_nodes.GPU, 0))
    product = node_gpus().product_of(labels)
    why = _why_not(node, labels, product) if count else None
    if why is not None:
        return UsableGpus(product, 0, (*left_out, LeftOut(*why, count)))
    return UsableGpus(product, count, tuple(left_out))


def summary(left_out: Iterable[LeftOut]) -> tuple[str, ...]:
    """Return a sentence for each reason, with the count of all nodes."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for each in left_out:
        counts[each.what, each.why] += each.quantity
    return tuple(f"{count} {what} are not planned with: {why}" for (what, why), count in sorted(counts.items()))


def is_whole(product: str) -> bool:
    """Whether discovery calls whole GPUs so: no slices of MIG, no shares, no virtual ones."""
    return not (_MIG_PRODUCT in product or product.endswith(_SHARED_PRODUCT) or _VGPU_PRODUCT.search(product))


def _why_not(node: Object, labels: Mapping[str, str], product: str) -> tuple[str, str] | None:
    """Return what `nvidia.com/gpu` counts on a node, and why no replica is planned on it; None: one is."""
    if part := _part(labels, product):
        return part
    if is_leaving(node):
        return _GPUS, "of nodes that are cordoned or about to leave"
    market, _ = kubernetes_nodes.market_of(labels)
    if taints := kubernetes_nodes.untolerated(node.get("spec", {}).get("taints") or (), market):
        return _GPUS, f"of nodes with the taint {', '.join(taints)}, which replicas do not tolerate"
    return None if product else (_GPUS, UNNAMED)


def _part(labels: Mapping[str, str], product: str) -> tuple[str, str] | None:
    """Return which part of a GPU is counted as one, and by what it is known; None: none is."""
    shared = ", ".join(
        f"{key} {labels[key]}" for key, values in kubernetes_nodes.SHARING.items() if labels.get(key) in values
    )
    partition = labels.get(kubernetes_nodes.GKE_PARTITION, "")
    if partition or _MIG_PRODUCT in product or kubernetes_nodes.MIG_SLICES in labels:
        return _SLICES, f"of {product or 'GPUs'}{f' in {partition}' if partition else ''}, no whole ones"
    if shared or product.endswith(_SHARED_PRODUCT):
        return _SHARES, f"of {product or 'GPUs'}{f' ({shared})' if shared else ''}, no whole ones"
    if labels.get(_VGPU) == "true" or _VGPU_PRODUCT.search(product):
        return _GPUS, f"of {product or 'nodes'}, virtual (vGPU), no whole ones"
    return None

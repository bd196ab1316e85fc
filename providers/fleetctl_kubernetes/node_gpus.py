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
_PARTS = re.compile(r"nvidia\.com/mig-.+|amd\.com/[a-z]+_nps\d")  # amd.com/cpx_nps4: partitions, by their own names
_SHARED = "nvidia.com/gpu.shared"  # what the device plugin calls a share where it is told to (renameByDefault)
_SHARED_PRODUCT, _MIG_PRODUCT = "-SHARED", "-MIG-"
_VGPU = "nvidia.com/vgpu.present"
_VGPU_PRODUCT = re.compile(r"-\d+[ABCQ]$")  # NVIDIA-A10-4Q: a quarter of a card's memory and less
UNNAMED = "of nodes of which no label says which GPUs they have"
_NAMED_BY = {
    kubernetes_nodes.GPU: f"{kubernetes_nodes.PRODUCT} of GPU feature discovery",
    kubernetes_nodes.AMD_GPU: f"{kubernetes_nodes.AMD_PRODUCT} of AMD's node labeller",
}
_GPUS, _SLICES, _SHARES, _PARTITIONS = "GPUs", "MIG slices", "shares of GPUs", "partitions of GPUs"


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
        LeftOut(_kind_of_part(name), f"{name}, no whole ones", int(count))
        for name, count in allocatable.items()
        if (name == _SHARED or _PARTS.fullmatch(name)) and int(count)
    ]
    counts = {each: int(allocatable.get(each, 0)) for each in (kubernetes_nodes.GPU, kubernetes_nodes.AMD_GPU)}
    # No machine has GPUs of both.
    resource = next((each for each, count in counts.items() if count), kubernetes_nodes.GPU)
    count, product = counts[resource], node_gpus().product_of(labels, gpus=resource)
    why = _why_not(node, labels, product, resource) if count else None
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


def _kind_of_part(resource: str) -> str:
    if resource.startswith("amd.com/"):
        return _PARTITIONS
    return _SHARES if resource == _SHARED else _SLICES


def _why_not(node: Object, labels: Mapping[str, str], product: str, resource: str) -> tuple[str, str] | None:
    """Return what the device plugin counts on a node, and why no replica is planned on it; None: one is."""
    if part := _part(labels, product):
        return part
    if is_leaving(node):
        return _GPUS, "of nodes that are cordoned or about to leave"
    market, _ = kubernetes_nodes.market_of(labels)
    if taints := kubernetes_nodes.untolerated(node.get("spec", {}).get("taints") or (), market, gpus=resource):
        return _GPUS, f"of nodes with the taint {', '.join(taints)}, which replicas do not tolerate"
    return None if product else (_GPUS, f"{UNNAMED} ({_NAMED_BY[resource]})")


def _part(labels: Mapping[str, str], product: str) -> tuple[str, str] | None:
    """Return which part of a GPU is counted as one, and by what it is known; None: none is."""
    shared = ", ".join(
        f"{key} {labels[key]}" for key, values in kubernetes_nodes.SHARING.items() if labels.get(key) in values
    )
    partition = labels.get(kubernetes_nodes.GKE_PARTITION, "")
    if partition or _MIG_PRODUCT in product or kubernetes_nodes.MIG_SLICES in labels:
        return _SLICES, f"of {product or 'GPUs'}{f' in {partition}' if partition else ''}, no whole ones"
    parts = labels.get(kubernetes_nodes.AMD_PARTITION, "")
    if parts and not parts.lower().startswith(kubernetes_nodes.AMD_WHOLE):
        return _PARTITIONS, f"of {product or 'GPUs'} in {parts}, no whole ones"
    if shared or product.endswith(_SHARED_PRODUCT):
        return _SHARES, f"of {product or 'GPUs'}{f' ({shared})' if shared else ''}, no whole ones"
    if labels.get(_VGPU) == "true" or _VGPU_PRODUCT.search(product):
        return _GPUS, f"of {product or 'nodes'}, virtual (vGPU), no whole ones"
    return None

"""GPUs that are not there yet: of Karpenter's NodePools, and of pools that a profile names for another autoscaler."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from fleetctl.catalogue import kubernetes_nodes
from fleetctl.model.catalogue import Market
from fleetctl_kubernetes.placement import ANY_ZONE

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]
CAPACITY_TYPE = "karpenter.sh/capacity-type"
# How many GPUs an instance has, as Karpenter calls it on AWS and Azure, and as the device plugin's discovery does.
_COUNTS = ("karpenter.k8s.aws/instance-gpu-count", "karpenter.azure.com/sku-gpu-count", "nvidia.com/gpu.count")
_NODE_GPUS_MAX = 8  # of one machine that clouds sell, where a pool does not say
POOL = re.compile(r"(?P<count>\d+)x(?P<product>[^/\s]+)(?:/(?P<zone>[^/\s]+))?/(?P<market>spot|on-demand)")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNodePool:
    """Nodes of one kind that an autoscaler brings when pods wait for them."""

    name: str  # the NodePool's, or as the profile names it
    product: str
    region: str
    zone: str
    market: Market
    gpus_max: int  # of one node
    notice_s: float  # of its end, on spot
    gpus_left: int | None  # that it may still bring, shared by all of its name; None: as many as there are


def pools_named(texts: tuple[str, ...]) -> Iterator[GpuNodePool]:
    """Yield the pools that a profile names, `8xNVIDIA-L40S/eu-west-1a/spot`; those that fit the form."""
    for text in texts:
        match = POOL.fullmatch(text)
        if match is None:
            continue
        market = Market(match["market"])
        # Whose spot it is nobody says: the shortest notice of all clouds is reckoned with.
        shortest = min(notice_s for _, notice_s in kubernetes_nodes.SPOT_LABELS.values())
        yield GpuNodePool(
            name=text, product=match["product"], region="", zone=match["zone"] or ANY_ZONE, market=market,
            gpus_max=int(match["count"]), notice_s=shortest if market is Market.SPOT else 0.0, gpus_left=None,
        )  # fmt: skip


def pools_of(node_pool: Object) -> Iterator[GpuNodePool]:
    """Yield what a NodePool of Karpenter can bring, where it says by label or requirement which GPUs its nodes have.

    Without `nvidia.com/gpu.product` in it, Karpenter brings no node for a pod that asks for a product.
    """
    template = node_pool["spec"].get("template", {})
    labels: dict[str, str] = (template.get("metadata") or {}).get("labels") or {}
    allowed = {key: [value] for key, value in labels.items()}
    for each in template.get("spec", {}).get("requirements") or ():
        if each.get("operator") == "In":
            allowed[each["key"]] = list(each.get("values") or ())
    if "deletionTimestamp" in node_pool["metadata"] or any(_is_unbearable(each) for each in _taints(template)):
        return
    name, left = node_pool["metadata"]["name"], _gpus_left(node_pool)
    counts = [int(value) for key in _COUNTS for value in allowed.get(key, ()) if value.isdecimal()]
    region = next(iter(allowed.get(kubernetes_nodes.REGION, ())), "")
    kinds = product(
        allowed.get(kubernetes_nodes.PRODUCT, ()),
        allowed.get(kubernetes_nodes.ZONE, [ANY_ZONE]),
        allowed.get(CAPACITY_TYPE, ["on-demand"]),  # Karpenter's own default
    )
    for gpu, zone, capacity_type in kinds:
        market, notice_s = kubernetes_nodes.market_of({CAPACITY_TYPE: capacity_type})
        yield GpuNodePool(
            name=name, product=gpu, region=region, zone=zone, market=market,
            gpus_max=max(counts, default=_NODE_GPUS_MAX), notice_s=notice_s, gpus_left=left,
        )  # fmt: skip


def _gpus_left(node_pool: Object) -> int | None:
    limit = (node_pool["spec"].get("limits") or {}).get(kubernetes_nodes.GPU)
    if limit is None:
        return None
    taken = ((node_pool.get("status") or {}).get("resources") or {}).get(kubernetes_nodes.GPU, 0)
    return max(0, int(limit) - int(taken))


def _taints(template: Object) -> list[Object]:
    return list(template.get("spec", {}).get("taints") or ())


def _is_unbearable(taint: Object) -> bool:
    """Whether a pod of ours on spot, which bears the most, would not run on a node with this taint."""
    borne = {each["key"] for each in kubernetes_nodes.tolerations(Market.SPOT, needs_gpus=True)}
    return taint.get("effect") in ("NoSchedule", "NoExecute") and taint.get("key") not in borne

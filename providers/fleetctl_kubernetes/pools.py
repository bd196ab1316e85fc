"""GPUs that are not there yet: of Karpenter's NodePools, and of pools that a profile names for another autoscaler."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from fleetctl.catalogue import kubernetes_nodes
from fleetctl.catalogue.node_gpus import node_gpus, resource_of
from fleetctl.errors import CredentialsError
from fleetctl.model.catalogue import Market
from fleetctl_kubernetes.connection import NotThereError
from fleetctl_kubernetes.node_gpus import is_whole
from fleetctl_kubernetes.placement import ANY_ZONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl_kubernetes.connection import ClusterConnection

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
        if match is None or not is_whole(match["product"]):
            continue
        market = Market(match["market"])
        # Whose spot it is nobody says: the shortest notice of all clouds is reckoned with.
        shortest = min(notice_s for _, notice_s in kubernetes_nodes.SPOT_LABELS.values())
        yield GpuNodePool(
            name=text, product=match["product"], region="", zone=match["zone"] or ANY_ZONE, market=market,
            gpus_max=int(match["count"]), notice_s=shortest if market is Market.SPOT else 0.0, gpus_left=None,
        )  # fmt: skip


async def node_pools(connection: ClusterConnection) -> list[Object]:
    """Return Karpenter's NodePools, where it is installed and they may be listed."""
    try:
        found = await connection.read(
            "CustomObjectsApi", "list_cluster_custom_object", "karpenter.sh", "v1", "nodepools"
        )
    except (NotThereError, CredentialsError):
        return []  # doctor says that they may not
    return list(found["items"])


def pools_of(node_pool: Object) -> Iterator[GpuNodePool]:
    """Yield what a NodePool of Karpenter can bring, where it says by label or requirement which GPUs its nodes have.

    Karpenter brings no node for a pod that asks for a label which is in none of its NodePools and which it does not know.
    """
    if "deletionTimestamp" in node_pool["metadata"]:
        return
    allowed = _allowed(node_pool)
    name = node_pool["metadata"]["name"]
    counts = [int(value) for key in _COUNTS for value in allowed.get(key, ()) if value.isdecimal()]
    region = next(iter(allowed.get(kubernetes_nodes.REGION, ())), "")
    for gpu, zone, market, notice_s in _kinds(allowed):
        resource = resource_of(gpu)
        if kubernetes_nodes.untolerated(_taints(node_pool), market, gpus=resource):
            continue
        of_type = [count] if (count := node_gpus().count_of(gpu)) else []
        yield GpuNodePool(
            name=name, product=gpu, region=region, zone=zone, market=market,
            gpus_max=max(of_type or counts, default=_NODE_GPUS_MAX), notice_s=notice_s, gpus_left=_gpus_left(node_pool, resource),
        )  # fmt: skip


def refused(node_pool: Object) -> str:
    """Return why a NodePool with GPUs is not planned with; empty: it is, on some market at least, or it has none."""
    taints = _taints(node_pool)
    by_kind = {
        (gpu, market): kubernetes_nodes.untolerated(taints, market, gpus=resource_of(gpu))
        for gpu, _, market, _ in _kinds(_allowed(node_pool))
    }
    if not by_kind or not all(by_kind.values()) or "deletionTimestamp" in node_pool["metadata"]:
        return ""
    found = {each for kept_off in by_kind.values() for each in kept_off}
    name = node_pool["metadata"]["name"]
    return f"NodePool {name} is not planned with: its nodes have the taint {', '.join(sorted(found))}, which replicas do not tolerate"


def _allowed(node_pool: Object) -> dict[str, list[str]]:
    """Return the values that a NodePool's nodes may have of each label."""
    template = node_pool["spec"].get("template", {})
    labels: dict[str, str] = (template.get("metadata") or {}).get("labels") or {}
    allowed = {key: [value] for key, value in labels.items()}
    for each in template.get("spec", {}).get("requirements") or ():
        if each.get("operator") == "In":
            allowed[each["key"]] = list(each.get("values") or ())
    return allowed


def _kinds(allowed: dict[str, list[str]]) -> Iterator[tuple[str, str, Market, float]]:
    """Yield product, zone, market and notice of what a NodePool can bring."""
    known = node_gpus()
    products: list[str] = []
    for key in (
        kubernetes_nodes.PRODUCT,
        kubernetes_nodes.AMD_PRODUCT,
        kubernetes_nodes.GPU_NAME,
        kubernetes_nodes.INSTANCE_TYPE,
    ):
        # The first that says it: a pool that names types and products may have any of these products.
        products = products or [each for each in allowed.get(key, ()) if known.label_of(each) == key and is_whole(each)]
    zones = allowed.get(kubernetes_nodes.ZONE, [ANY_ZONE])
    capacity_types = allowed.get(CAPACITY_TYPE, ["on-demand"])  # Karpenter's own default
    for gpu, zone, capacity_type in product(products, zones, capacity_types):
        market, notice_s = kubernetes_nodes.market_of({CAPACITY_TYPE: capacity_type})
        yield gpu, zone, market, notice_s


def _gpus_left(node_pool: Object, resource: str) -> int | None:
    limit = (node_pool["spec"].get("limits") or {}).get(resource)
    if limit is None:
        return None
    taken = ((node_pool.get("status") or {}).get("resources") or {}).get(resource, 0)
    return max(0, int(limit) - int(taken))


def _taints(node_pool: Object) -> list[Object]:
    return list(node_pool["spec"].get("template", {}).get("spec", {}).get("taints") or ())

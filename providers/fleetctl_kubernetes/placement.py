"""Which nodes of a cluster are what offerings, and how a pod asks for them: GPUs, zones, spot and on-demand by each cloud's labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fleetctl.model.catalogue import Market, OfferingKey

if TYPE_CHECKING:
    from collections.abc import Mapping

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
ANY_ZONE = "cluster"  # of nodes that name none
# What says that a node is spot: Karpenter, EKS, GKE, AKS; and how long before its end it is known.
SPOT_LABELS: dict[str, tuple[str, float]] = {
    "karpenter.sh/capacity-type": ("spot", 120.0),
    "eks.amazonaws.com/capacityType": ("SPOT", 120.0),
    "cloud.google.com/gke-spot": ("true", 15.0),
    "kubernetes.azure.com/scalesetpriority": ("spot", 30.0),
}
# Taints that spot nodes and nodes with GPUs have from the start.
_TOLERATED_ON_SPOT = (
    "kubernetes.azure.com/scalesetpriority",
    "cloud.google.com/gke-spot",
    "karpenter.sh/capacity-type",
)
_TYPE = re.compile(r"(?P<count>\d+)x(?P<product>.+)")


def market_of(labels: Mapping[str, str]) -> tuple[Market, float]:
    """Return how a node was bought, by its labels, and how long before its end that is known, in seconds."""
    for name, (value, notice_s) in SPOT_LABELS.items():
        if labels.get(name) == value:
            return Market.SPOT, notice_s
    return Market.ON_DEMAND, 0.0


def affinity(offering: str, market: Market) -> Object:
    """Return the node affinity of an order: its market, and the GPU and the zone that its offering names."""
    exact = [
        {"key": key, "operator": "In", "values": [value]} for key, value in _named(OfferingKey.parse(offering)).items()
    ]
    if market is Market.SPOT:
        terms = [[{"key": key, "operator": "In", "values": [value]}] for key, (value, _) in SPOT_LABELS.items()]
    else:  # absent counts as not in
        terms = [[{"key": key, "operator": "NotIn", "values": [value]} for key, (value, _) in SPOT_LABELS.items()]]
    required = {"nodeSelectorTerms": [{"matchExpressions": [*term, *exact]} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def spread(labels: dict[str, str]) -> list[Object]:
    """Return that these pods go over zones and nodes as evenly as there is room."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels},
        }
        for key in (ZONE, "kubernetes.io/hostname")
    ]


def tolerations(market: Market, *, needs_gpus: bool) -> list[Object]:
    """Return the taints that do not matter to a replica."""
    keys = (*((GPU,) if needs_gpus else ()), *(_TOLERATED_ON_SPOT if market is Market.SPOT else ()))
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]


def instance_type(count: int, product: str) -> str:
    """Return the type of a share of a node: so many of these GPUs."""
    return f"{count}x{product}"


def _named(key: OfferingKey) -> dict[str, str]:
    """Return the labels that an offering of ours stands for."""
    match = _TYPE.fullmatch(key.instance_type)
    found = {PRODUCT: match["product"]} if match else {}
    return found | ({ZONE: key.zone} if key.zone and key.zone != ANY_ZONE and match else {})

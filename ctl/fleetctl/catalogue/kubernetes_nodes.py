"""What clouds and discovery say of a Kubernetes node by its labels and taints, and how a pod asks for one or the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.model.catalogue import Market

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleetctl.model.node import Mount

Object = dict[str, Any]
GPU = "nvidia.com/gpu"  # the device plugin's resource, and the taint of nodes that have some
PRODUCT = "nvidia.com/gpu.product"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"
# What says that a node is spot: Karpenter, EKS, GKE, AKS; and how many seconds before its end it is known.
SPOT_LABELS: dict[str, tuple[str, float]] = {
    "karpenter.sh/capacity-type": ("spot", 120.0),
    "eks.amazonaws.com/capacityType": ("SPOT", 120.0),
    "cloud.google.com/gke-spot": ("true", 15.0),
    "kubernetes.azure.com/scalesetpriority": ("spot", 30.0),
}
# Taints that spot nodes have from the start.
_SPOT_TAINTS = ("kubernetes.azure.com/scalesetpriority", "cloud.google.com/gke-spot", "karpenter.sh/capacity-type")


def market_of(labels: Mapping[str, str]) -> tuple[Market, float]:
    """Return how a node was bought, by its labels, and how long before its end that is known, in seconds."""
    for name, (value, notice_s) in SPOT_LABELS.items():
        if labels.get(name) == value:
            return Market.SPOT, notice_s
    return Market.ON_DEMAND, 0.0


def affinity(market: Market, labels: Mapping[str, str]) -> Object:
    """Return the affinity to nodes of a market that have these labels."""
    exact = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    if market is Market.SPOT:
        terms = [[{"key": key, "operator": "In", "values": [value]}] for key, (value, _) in SPOT_LABELS.items()]
    else:  # absent counts as not in
        terms = [[{"key": key, "operator": "NotIn", "values": [value]} for key, (value, _) in SPOT_LABELS.items()]]
    required = {"nodeSelectorTerms": [{"matchExpressions": [*term, *exact]} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def spread(labels: Mapping[str, str]) -> list[Object]:
    """Return that pods with these labels go over zones and nodes as evenly as there is room."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(labels)},
        }
        for key in (ZONE, HOSTNAME)
    ]


def tolerations(market: Market, *, needs_gpus: bool) -> list[Object]:
    """Return the taints that do not matter to a replica."""
    keys = (*((GPU,) if needs_gpus else ()), *(_SPOT_TAINTS if market is Market.SPOT else ()))
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]


def volumes_of(mounts: Iterable[Mount]) -> tuple[list[Object], list[Object]]:
    """Return a pod's volumes and its container's mounts: of the node's paths, of claims by their names, and shared memory."""
    # Tensor-parallel workers talk through shared memory, of which a container has 64 MiB by default.
    volumes: list[Object] = [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
    shown: list[Object] = [{"name": "shared-memory", "mountPath": "/dev/shm"}]  # noqa: S108  # the container's own
    for number, mount in enumerate(mounts):
        name = f"mount-{number}"
        claim = {"persistentVolumeClaim": {"claimName": mount.source}}
        volumes.append({"name": name, **({"hostPath": {"path": mount.source}} if mount.is_path else claim)})
        shown.append({"name": name, "mountPath": mount.target, **({"readOnly": True} if mount.read_only else {})})
    return volumes, shown

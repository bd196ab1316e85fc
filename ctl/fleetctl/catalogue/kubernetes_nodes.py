"""What clouds and discovery say of a Kubernetes node by its labels and taints, and how a pod asks for one or the other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fleetctl.model.catalogue import Market

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fleetctl.model.node import Mount

Object = dict[str, Any]
GPU = "nvidia.com/gpu"  # the device plugin's resource, and the taint of nodes that have some
PRODUCT = "nvidia.com/gpu.product"
AMD_GPU = "amd.com/gpu"  # the same of AMD's
AMD_PRODUCT = "amd.com/gpu.product-name"  # of AMD's node labeller
GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"
GPU_NAME = "karpenter.k8s.aws/instance-gpu-name"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"
# The type of what a cluster offers: so many GPUs of a node, by the value of the label that names them.
_SHARE = re.compile(r"(?P<count>\d+)x(?P<product>.+)")
# What says that a node is spot: Karpenter, EKS, GKE, AKS; and how many seconds before its end it is known.
SPOT_LABELS: dict[str, tuple[str, float]] = {
    "karpenter.sh/capacity-type": ("spot", 120.0),
    "eks.amazonaws.com/capacityType": ("SPOT", 120.0),
    "cloud.google.com/gke-spot": ("true", 15.0),
    "kubernetes.azure.com/scalesetpriority": ("spot", 30.0),
}
# Taints that spot nodes have from the start.
_SPOT_TAINTS = ("kubernetes.azure.com/scalesetpriority", "cloud.google.com/gke-spot", "karpenter.sh/capacity-type")


# The taint that AKS's guide has GPU pools be given (learn.microsoft.com/azure/aks/use-nvidia-gpu).
_AKS_GPU_TAINT = {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
# What a node says whose GPUs are not whole: time-slicing and MPS of the device plugin and of GKE, and MIG (`gpu.slices.gi`
# is discovery's, under the `single` strategy, where each slice is called a GPU).
SHARING: dict[str, tuple[str, ...]] = {
    "nvidia.com/gpu.sharing-strategy": ("time-slicing", "mps"),
    "cloud.google.com/gke-gpu-sharing-strategy": ("time-sharing", "mps"),
}
GKE_PARTITION = "cloud.google.com/gke-gpu-partition-size"
MIG_SLICES = "nvidia.com/gpu.slices.gi"
# How AMD's GPUs are partitioned, by its node labeller: each partition is called a GPU by the device plugin's `single` naming.
# spx is one partition, the whole.
AMD_PARTITION = "amd.com/gpu.compute-memory-partition"
AMD_WHOLE = "spx"
_AMD_PARTS = [
    f"{compute}_{memory}" for compute in ("dpx", "tpx", "qpx", "cpx") for memory in ("nps1", "nps2", "nps4", "nps8")
]
_WHOLE: dict[str, tuple[Object, ...]] = {
    GPU: (
        *({"key": key, "operator": "NotIn", "values": [*values]} for key, values in SHARING.items()),
        *({"key": key, "operator": "DoesNotExist"} for key in (GKE_PARTITION, MIG_SLICES)),
    ),
    AMD_GPU: ({"key": AMD_PARTITION, "operator": "NotIn", "values": _AMD_PARTS},),
}


def market_of(labels: Mapping[str, str]) -> tuple[Market, float]:
    """Return how a node was bought, by its labels, and how long before its end that is known, in seconds."""
    for name, (value, notice_s) in SPOT_LABELS.items():
        if labels.get(name) == value:
            return Market.SPOT, notice_s
    return Market.ON_DEMAND, 0.0


def share_product(instance_type: str) -> str:
    """Return the product of a share as a cluster offers it (2xNVIDIA-L40S); empty: it is no such type."""
    match = _SHARE.fullmatch(instance_type)
    return match["product"] if match is not None else ""


def affinity(
    market: Market,
    labels: Mapping[str, str],
    *,
    any_of: Mapping[str, Sequence[str]] | None = None,
    gpus: str = GPU,
) -> Object:
    """Return the affinity to nodes of a market that have these labels, and whose GPUs are whole where that matters.

    `gpus` is the resource that is asked for; empty: none is. `any_of` is labels of which one is enough, each with the values that it may have; none: they do not matter.
    """
    exact = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    whole = _WHOLE.get(gpus, ())
    if market is Market.SPOT:
        terms = [[{"key": key, "operator": "In", "values": [value]}] for key, (value, _) in SPOT_LABELS.items()]
    else:  # absent counts as not in
        terms = [[{"key": key, "operator": "NotIn", "values": [value]} for key, (value, _) in SPOT_LABELS.items()]]
    # A node is right where one term fits it, so that each alternative has to be a term of its own, with all the rest in it.
    either = [[{"key": key, "operator": "In", "values": [*values]}] for key, values in (any_of or {}).items()]
    expressions = [[*term, *exact, *one, *whole] for term in terms for one in either or [[]]]
    required = {"nodeSelectorTerms": [{"matchExpressions": each} for each in expressions]}
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


def tolerations(market: Market, *, gpus: str) -> list[Object]:
    """Return the taints that do not matter to a replica; `gpus` is the resource that it asks for, empty for none."""
    keys = (*((gpus,) if gpus else ()), *(_SPOT_TAINTS if market is Market.SPOT else ()))
    known = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
    return [*known, *([dict(_AKS_GPU_TAINT)] if gpus else ())]


def untolerated(taints: Iterable[Object], market: Market, *, gpus: str = GPU) -> tuple[str, ...]:
    """Return the taints that keep a replica with such GPUs off a node of this market, as kubectl writes them."""
    borne = tolerations(market, gpus=gpus)
    return tuple(
        f"{each['key']}{'=' + each['value'] if each.get('value') else ''}:{each['effect']}"
        for each in taints
        if each["effect"] in ("NoSchedule", "NoExecute") and not any(_is_borne(each, by) for by in borne)
    )


def _is_borne(taint: Object, toleration: Object) -> bool:
    """Whether a toleration of ours, which names key and effect, is of this taint."""
    if (toleration["key"], toleration["effect"]) != (taint["key"], taint["effect"]):
        return False
    return bool(toleration["operator"] == "Exists" or toleration.get("value", "") == (taint.get("value") or ""))


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

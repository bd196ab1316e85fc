"""GPUs by DRA: which of them ResourceSlices show, and how a pod claims some of one product."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from fleetctl.catalogue import kubernetes_nodes
from fleetctl_kubernetes.settings import MANAGED_BY, MANAGER

if TYPE_CHECKING:
    from collections.abc import Iterable

Object = dict[str, Any]
DRIVER = "gpu.nvidia.com"
DEVICE_CLASS = "gpu.nvidia.com"
_CLAIM = "gpus"  # within a pod


def gpus_of(slices: Iterable[Object]) -> dict[str, dict[str, int]]:
    """Return how many whole GPUs of each product every node has, by the driver's newest slices."""
    newest: dict[tuple[str, str], int] = {}
    kept: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for each in slices:
        spec = each["spec"]
        if spec.get("driver") != DRIVER or not spec.get("nodeName"):
            continue
        pool = (spec["nodeName"], spec["pool"]["name"])
        generation = int(spec["pool"].get("generation", 0))
        if generation > newest.get(pool, -1):  # what is older is being replaced
            newest[pool], kept[pool] = generation, []
        if generation == newest[pool]:
            kept[pool].append(each)
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for (node, _), own in kept.items():
        for device in (device for each in own for device in each["spec"].get("devices") or ()):
            if product := _product(device):
                found[node][product] += 1
    return {node: dict(counts) for node, counts in found.items()}


def with_claimed(nodes: Iterable[Object], slices: Iterable[Object], *, is_forced: bool) -> list[Object]:
    """Return the nodes as if the device plugin showed what slices show of them; where it shows some itself they stay.

    `is_forced`: what it shows itself does not count. A node of two products is one for each.
    """
    by_node = gpus_of(slices)
    found = []
    for node in nodes:
        status = node.get("status", {})
        plugged = dict(status.get("allocatable") or {})
        if is_forced:
            plugged.pop(kubernetes_nodes.GPU, None)
        shown = by_node.get(node["metadata"]["name"], {})
        if int(plugged.get(kubernetes_nodes.GPU, 0)):
            found.append(node)
            continue
        if not shown:  # one without GPUs, or with parts of them alone, which are said to be there
            found.append({**node, "status": {**status, "allocatable": plugged}})
        for product, count in shown.items():
            labels = {**(node["metadata"].get("labels") or {}), kubernetes_nodes.PRODUCT: product}
            allocatable = {**plugged, kubernetes_nodes.GPU: str(count)}
            metadata = {**node["metadata"], "labels": labels}
            found.append({**node, "metadata": metadata, "status": {**status, "allocatable": allocatable}})
    return found


def claimed_products(nodes: Iterable[Object], slices: Iterable[Object]) -> frozenset[str]:
    """Return the products that only slices show: a pod gets these by a claim."""
    nodes = list(nodes)
    plugged = {
        (node["metadata"].get("labels") or {}).get(kubernetes_nodes.PRODUCT, "")
        for node in nodes
        if int((node.get("status", {}).get("allocatable") or {}).get(kubernetes_nodes.GPU, 0))
    }
    return frozenset(product for counts in gpus_of(slices).values() for product in counts) - plugged


def template_of(name: str, product: str, count: int, *, labels: dict[str, str], reference: Object) -> Object:
    """Return the template that every pod's own claim of so many GPUs of a product is made by."""
    same = f'device.attributes["{DRIVER}"].productName.replace(" ", "-") == "{product}"'
    whole = f'device.attributes["{DRIVER}"].type == "gpu"'
    exactly = {
        "deviceClassName": DEVICE_CLASS,
        "count": count,
        "selectors": [{"cel": {"expression": whole}}, {"cel": {"expression": same}}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [reference]},
        "spec": {
            "metadata": {"labels": {MANAGED_BY: MANAGER}},
            "spec": {"devices": {"requests": [{"name": _CLAIM, "exactly": exactly}]}},
        },
    }


def template_name(owner: str, fleet: str, product: str, count: int) -> str:
    """Return the only name of a fleet's template for this: a template never changes."""
    return f"fleetctl-{hashlib.sha256(f'{owner}/{fleet}/{product}/{count}'.encode()).hexdigest()[:24]}"


def _product(device: Object) -> str:
    """Return a whole GPU's product as discovery's label spells it; empty: it is a part of one."""
    attributes = device.get("attributes") or {}
    kind = (attributes.get("type") or {}).get("string")
    name = str((attributes.get("productName") or {}).get("string", ""))
    return name.replace(" ", "-") if kind == "gpu" else ""

"""The names of what a cluster offers, and the labels that such a name stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.catalogue.kubernetes_nodes import ZONE, share_product
from fleetctl.catalogue.node_gpus import node_gpus, resource_of
from fleetctl.model.catalogue import OfferingKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.catalogue import Offering

ANY_ZONE = "cluster"  # of nodes that name none


def instance_type(count: int, product: str) -> str:
    """Return the type of a share of a node: so many of these GPUs."""
    return f"{count}x{product}"


def product_of(offering: Offering) -> str:
    """Return what stands for an offering's GPUs: a label's value."""
    return share_product(offering.instance_type)


def resource_of_offering(offering: str) -> str:
    """Return the resource that its GPUs are asked for by; of another's name NVIDIA's."""
    return resource_of(share_product(OfferingKey.parse(offering).instance_type))


def labels_of(offering: str) -> Mapping[str, str]:
    """Return the labels of the nodes that an offering of ours is a share of; of another's name none."""
    key = OfferingKey.parse(offering)
    product = share_product(key.instance_type)
    if not product:
        return {}
    return {node_gpus().label_of(product): product} | ({ZONE: key.zone} if key.zone not in ("", ANY_ZONE) else {})

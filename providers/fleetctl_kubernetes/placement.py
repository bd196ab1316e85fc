"""The names of what a cluster offers, and the labels that such a name stands for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleetctl.catalogue.kubernetes_nodes import ZONE
from fleetctl.catalogue.node_gpus import node_gpus
from fleetctl.model.catalogue import OfferingKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.catalogue import Offering

ANY_ZONE = "cluster"  # of nodes that name none
_TYPE = re.compile(r"(?P<count>\d+)x(?P<product>.+)")


def instance_type(count: int, product: str) -> str:
    """Return the type of a share of a node: so many of these GPUs."""
    return f"{count}x{product}"


def product_of(offering: Offering) -> str:
    """Return what stands for an offering's GPUs: a label's value."""
    match = _TYPE.fullmatch(offering.instance_type)
    return match["product"] if match is not None else ""


def labels_of(offering: str) -> Mapping[str, str]:
    """Return the labels of the nodes that an offering of ours is a share of; of another's name none."""
    key = OfferingKey.parse(offering)
    match = _TYPE.fullmatch(key.instance_type)
    if match is None:
        return {}
    product = match["product"]
    return {node_gpus().label_of(product): product} | ({ZONE: key.zone} if key.zone not in ("", ANY_ZONE) else {})

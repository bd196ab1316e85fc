"""Which nodes have the GPUs that a lane is planned for, where no cluster can be asked: by every label that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.catalogue.kubernetes_nodes import share_product
from fleetctl.catalogue.node_gpus import node_gpus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.plan import LanePlan

_KUBERNETES = "kubernetes"  # the provider whose offerings are named by a label's value


def gpu_node_labels(lane_plan: LanePlan) -> Mapping[str, tuple[str, ...]]:
    """Return the labels by any of which a node has the lane's GPUs, each with its values; empty: none is known.

    A plan that was made for a cluster has that cluster's own product too, which the catalogue may not list.
    """
    known = node_gpus()
    labels = known.labels_of(lane_plan.gpu)
    for offering in (lane_plan.offering, lane_plan.spot_offering):
        if offering is None or offering.provider != _KUBERNETES or offering.gpu != lane_plan.gpu:
            continue
        if product := share_product(offering.instance_type):
            key = known.label_of(product)
            labels[key] = tuple(sorted({*labels.get(key, ()), product}))
    return labels


def gpu_node_comment(lane_plan: LanePlan) -> str:
    """Return a sentence for people on where a lane's pods go."""
    labels = gpu_node_labels(lane_plan)
    if not labels:
        return (
            f"No label is known of nodes with {lane_plan.gpu}: its pods go to any node with nvidia.com/gpu, whatever the plan says. "
            "Have an overlay select the right ones."
        )
    return f"Its pods go to nodes with {lane_plan.gpu} alone, by any of the labels {', '.join(labels)}."

"""Which nodes have the GPUs that a lane is planned for, where no cluster can be asked: by every label that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.catalogue.kubernetes_nodes import AMD_GPU, share_product
from fleetctl.catalogue.node_gpus import gpu_resource, node_gpus

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


def gpu_node_comment(lane_plan: LanePlan, *, names_image: bool) -> str:
    """Return sentences for people on where a lane's pods go, and on its image, unless the profile names that."""
    resource = gpu_resource(lane_plan.gpu)
    image = " Its image has to be a build for ROCm: name one in launch.image." if resource == AMD_GPU else ""
    return _nodes_comment(lane_plan, resource) + ("" if names_image else image)


def _nodes_comment(lane_plan: LanePlan, resource: str) -> str:
    labels = gpu_node_labels(lane_plan)
    if not labels:
        return (
            f"No label is known of nodes with {lane_plan.gpu}: its pods go to any node with {resource}, whatever the plan says. "
            "Have an overlay select the right ones."
        )
    return f"Its pods go to nodes with {lane_plan.gpu} alone, by any of the labels {', '.join(labels)}."

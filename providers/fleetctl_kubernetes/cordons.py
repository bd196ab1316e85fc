"""Machines with GPUs that take nothing new: what is said of them where a lane lacks replicas, or is about to be planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl_kubernetes.node_gpus import gpus_of

if TYPE_CHECKING:
    from collections.abc import Iterable

Object = dict[str, Any]
_NAMED_MAX = 5


def cordoned_text(nodes: Iterable[Object]) -> str:
    """Return which of the nodes with GPUs are cordoned, and what they have; empty: none is."""
    found = sorted(
        (each["metadata"]["name"], count, gpus_of(each).product or "GPUs")
        for each in nodes
        if each.get("spec", {}).get("unschedulable")
        and (count := sum(left.quantity for left in gpus_of(each).left_out))
    )
    if not found:
        return ""
    counts: dict[str, int] = {}
    for _, count, product in found:
        counts[product] = counts.get(product, 0) + count
    names = [name for name, _, _ in found]
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    has = ", ".join(f"{count} {product}" for product, count in sorted(counts.items()))
    what = "node is" if len(names) == 1 else "nodes are"
    return f"{len(names)} {what} cordoned, with {has}, which nothing new is placed on: {', '.join(names[:_NAMED_MAX])}{more}"

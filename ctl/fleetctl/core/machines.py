"""How many machines a fleet holds: what the cap on nodes counts."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import OfferingKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleetctl.model.replica import Replica


def machine_count(replicas: Iterable[Replica]) -> int:
    """Return the machines under these replicas: several for one that spans them, one for all that share it.

    Replicas share a machine by the GPUs pinned to each. One without has, as far as is known, machines of its own.
    """
    shared: set[str] = set()
    others = 0
    for replica in replicas:
        if replica.machine_id and replica.gpu_indices:
            shared.add(replica.machine_id)
            others += replica.node_count - 1
        else:
            others += replica.node_count
    return len(shared) + others


def by_type(replicas: Iterable[Replica]) -> Mapping[str, int]:
    """Return the machines under these replicas by their instance type."""
    found: dict[str, list[Replica]] = defaultdict(list)
    for replica in replicas:
        found[OfferingKey.parse(replica.offering).instance_type].append(replica)
    return {name: machine_count(alike) for name, alike in found.items()}

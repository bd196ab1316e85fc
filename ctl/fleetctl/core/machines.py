"""How many machines a fleet holds: what the cap on nodes counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

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

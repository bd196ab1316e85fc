"""Keeps since when a node is unlisted, a replica unhealthy, a orphaned nodes seen: instants that outlive a restart."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.changed import changed
from fleetctl.core.reconcile.limits import absence_counts
from fleetctl.model.node import NodeState
from fleetctl.model.replica import ENDED_STATES, ReplicaState

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.model.decision import Memory
    from fleetctl.model.observation import Observation

_PROBED = (ReplicaState.WARMING, ReplicaState.READY)


def update_memory(observation: Observation, memory: Memory, now: datetime) -> Memory:
    """Return the memory with its instants brought up to `now`; what is no longer so is forgotten."""
    replicas = [r for r in observation.replicas if r.record.state not in ENDED_STATES]
    known = memory.missing_since
    missing = [
        r.record.id
        for r in replicas
        if r.node is None
        and r.record.state is not ReplicaState.PENDING
        and (r.record.id in known or absence_counts(r, listing_ok=observation.listing_ok))
    ]
    orphaned_nodes = (n.id for n in observation.orphaned_nodes if n.state is not NodeState.GONE)
    failing = [r.record.id for r in replicas if r.healthy is False and r.record.state in _PROBED]
    counts = memory.unhealthy_count
    first = next((each for each in observation.gateways if each.number == 1), None)
    answered = observation.gateway is not None if first is None else first.snapshot is not None
    return changed(
        memory,
        missing_since=_since(known, missing, now),
        orphaned_since=_since(memory.orphaned_since, orphaned_nodes, now),
        unhealthy_count={r.record.id: n for r in replicas if (n := counts.get(r.record.id, 0))} if counts else counts,
        unhealthy_since=_since(memory.unhealthy_since, failing, now),
        gateway_missing_since=None if answered else _missing_since(observation, memory, now),
        gateway_starts=0 if answered else memory.gateway_starts,
    )


def _missing_since(observation: Observation, memory: Memory, now: datetime) -> datetime:
    """Return since when the gateway does not answer; one that lives has no time counted in which it could not have."""
    since = memory.gateway_missing_since or now
    lost = timedelta(seconds=observation.gateway_lost_s if observation.gateway_alive else 0.0)
    return min(now, since + lost)


def _since(known: dict[str, datetime], now_true: Iterable[str], now: datetime) -> dict[str, datetime]:
    return {key: known.get(key, now) for key in sorted(now_true)}

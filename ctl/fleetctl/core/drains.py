"""Which replicas people have asked to leave: by name, or with the node or the zone they are in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.desired import Cordon, Overrides
    from fleetctl.model.observation import ObservedReplica
    from fleetctl.model.replica import Replica

NODE, ZONE = "node", "zone"


def is_drain_requested(record: Replica, overrides: Overrides) -> bool:
    """Whether a person asked for this very replica to leave, and has not taken that back."""
    return record.drain_requested and record.id not in overrides.undrained


def cordon_of(record: Replica, overrides: Overrides) -> tuple[str, Cordon] | None:
    """Return the cordon that a replica is to leave, with what it is on; None: none.

    What was ordered after a node was cordoned and came to stand on it all the same stays: its provider places it there,
    and would again.
    """
    for target in targets_of(record):
        cordon = overrides.cordons.get(target)
        since = None if cordon is None else cordon.terms.since
        is_later = target.startswith(NODE) and since is not None and record.requested_at > since
        if cordon is not None and not is_later:
            return target, cordon
    return None


def cordoned_zones(overrides: Overrides) -> frozenset[str]:
    """Return the zones that no replica is launched in."""
    return frozenset(name for kind, _, name in (key.partition("/") for key in overrides.cordons) if kind == ZONE)


def with_drain(record: Replica, overrides: Overrides) -> Replica:
    """Return a replica's record with whether it is to leave, by everything that people have asked for."""
    leaves = is_drain_requested(record, overrides) or cordon_of(record, overrides) is not None
    return record if leaves is record.drain_requested else replace(record, drain_requested=leaves)


def with_drains(replicas: Iterable[ObservedReplica], overrides: Overrides) -> tuple[ObservedReplica, ...]:
    """Return replicas whose records say whether they are to leave; nothing is copied where nobody asked for anything."""
    if not overrides.cordons and not overrides.undrained:
        return tuple(replicas)
    return tuple(msgspec.structs.replace(each, record=with_drain(each.record, overrides)) for each in replicas)


def surging(replicas: Iterable[ObservedReplica], overrides: Overrides) -> frozenset[str]:
    """Return the replicas that leave only as far as others serve in their stead."""
    if not overrides.cordons:
        return frozenset()
    found = ((each.record.id, cordon_of(each.record, overrides)) for each in replicas)
    return frozenset(name for name, at in found if at is not None and not at[1].is_immediate)


def targets_of(record: Replica) -> tuple[str, ...]:
    """Return by what a replica leaves with its node, its machines or its zone: "node/n-1", "zone/a"."""
    nodes = dict.fromkeys(each for each in (record.node_id, record.machine_id, *record.members) if each)
    return (*(f"{NODE}/{name}" for name in nodes), *((f"{ZONE}/{record.zone}",) if record.zone else ()))

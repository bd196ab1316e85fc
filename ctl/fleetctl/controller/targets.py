"""Tells a provider that guards replicas against others how many of them each lane is to have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.rollout.in_force import in_force
from fleetctl.core.status import wanted_replicas

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.controller.world import World
    from fleetctl.model.decision import Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.replica import Replica


def note_targets(world: World, desired: Desired, memory: Memory, records: Iterable[Replica]) -> None:
    """Say what a decision has left wanted, as the status says it; nothing where the provider guards nobody."""
    targets = world.provider.capabilities.targets
    if targets is None:
        return
    now = in_force(desired, memory.rollout)
    targets.note_targets(
        owner=world.store.owner,
        fleet=world.fleet,
        wanted={spec.name: wanted_replicas(now, spec, memory.lane(spec.name)) for spec in now.profile.lanes},
        moved={record.id: record.lane for record in records if record.assigned_at is not None and record.state.is_live},
        epoch=world.epoch,
    )

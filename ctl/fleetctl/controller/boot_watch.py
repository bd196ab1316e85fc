"""Follows each start through its phases, as provider, node and engine show them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.boot_phases import boot_concern, boot_steps
from fleetctl.core.perf.kv import weight_bytes
from fleetctl.model.boot import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.controller.world import World
    from fleetctl.core.boot_phases import MeasuredPhases
    from fleetctl.model.boot import BootPhase, BootStep
    from fleetctl.model.node import BootProgress
    from fleetctl.model.observation import ObservedReplica
    from fleetctl.model.replica import Replica

_WHOLE_MAX = 0.99  # of a total that is the card's, while it still comes


class BootWatch:
    """Holds the phases that each start has come to. What a controller before this one saw is told by record and node again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._steps: dict[str, tuple[BootStep, ...]] = {}

    def keep_only(self, records: Iterable[Replica]) -> None:
        """Forget every start but these."""
        live = {record.id for record in records}
        self._steps = {rid: steps for rid, steps in self._steps.items() if rid in live}

    def followed(
        self,
        seen: ObservedReplica,
        others: MeasuredPhases,
        declared: tuple[BootPhase, ...],
        *,
        now: datetime,
        is_node_running: bool,
    ) -> ObservedReplica:
        """Return a replica with the phases of its start, and the one that takes longer than usual.

        `declared` are the provider's phases.
        """
        record = seen.record
        steps = boot_steps(record, seen.boot, self._steps.get(record.id, ()), now=now, is_node_running=is_node_running)
        if not steps:
            self._steps.pop(record.id, None)
            return seen
        self._steps[record.id] = steps
        concern = boot_concern(record, steps, others, declared, now=now)
        boot = self._with_total(record, seen.boot)
        return msgspec.structs.replace(seen, boot=boot, boot_steps=steps, boot_concern=concern)

    def _with_total(self, record: Replica, boot: BootProgress | None) -> BootProgress | None:
        """Return a download of weights with their size by the model's card, where the node does not know it."""
        if boot is None or boot.phase != WEIGHTS or boot.total_bytes or not boot.done_bytes:
            return boot
        desired = self._world.store.fleet()
        planned = next((each for each in desired.plan.lanes if each.lane == record.lane), None) if desired else None
        card = desired.plan.card_of(planned) if desired is not None and planned is not None else None
        if card is None:
            return boot
        total = int(weight_bytes(card, card.native_precision))
        return replace(boot, total_bytes=total, fraction=min(_WHOLE_MAX, boot.done_bytes / total))

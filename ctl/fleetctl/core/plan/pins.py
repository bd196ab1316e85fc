"""Names the launch settings pinned by hand that leave no plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.plan.sizing import CHUNKS, GPU_MEMORY_UTILIZATION, SizingResult, size
from fleetctl.errors import FleetctlError, InfeasiblePlanError, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.plan.instances import Instance
    from fleetctl.core.plan.sizing import Settings
    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.profile import LaneSpec

# Those that the sizing of a lane on given instances would choose, and where the settings it chose have them.
_CHOSEN = {
    "max_model_len": "model_len",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "max_num_seqs": "seqs",
    "max_num_batched_tokens": "batched_tokens",
}


def pinned_too_low(lane: LaneSpec, found: Sequence[Instance], demand: LaneDemand) -> FleetctlError | None:
    """Return the error for the pinned settings that stand in the way; None where nothing pinned does."""
    pinned = [name for name in _CHOSEN if getattr(lane.launch, name) is not None]
    alone = [(name, free) for name in pinned if (free := _size_without([name], lane, found, demand)) is not None]
    if alone:
        return joined([_error(lane, name, free, found) for name, free in alone])
    freed = _size_without(pinned, lane, found, demand) if len(pinned) > 1 else None
    return joined([_error(lane, name, freed, found) for name in pinned]) if freed is not None else None


def _size_without(
    names: Sequence[str], lane: LaneSpec, found: Sequence[Instance], demand: LaneDemand
) -> SizingResult | None:
    """Return the sizing with the fewest replicas where these are not pinned."""
    free = replace(lane, launch=replace(lane.launch, **dict.fromkeys(names)))  # type: ignore[arg-type]  # fields whose None means: as planned
    results = (size(free, instance, demand) for instance in found)
    return min((result for result in results if result is not None), key=lambda result: result.needed, default=None)


def _error(lane: LaneSpec, name: str, free: SizingResult, found: Sequence[Instance]) -> InfeasiblePlanError:
    value = getattr(lane.launch, name)
    return InfeasiblePlanError(
        f"lane {lane.name}: no number of replicas keeps every promise with {name} pinned to {value}"
        f"{_limit(lane, found) if name == 'max_model_len' else ''}",
        hint=f"leave it out: the plan would take {_chosen(free.settings, name)}",
        key=("lanes", lane.name, "launch", name),
    )


def _limit(lane: LaneSpec, found: Sequence[Instance]) -> str:
    """Return what limits the length of a request: what the model takes, or the KV cache holds."""
    taken = found[0].card.context_tokens_max
    share = lane.launch.gpu_memory_utilization or GPU_MEMORY_UTILIZATION
    held = max(
        i.sequence_kv.longest(i.kv_tokens(gpu_memory_utilization=share, max_num_batched_tokens=CHUNKS[-1]))
        for i in found
    )
    return f", and the model takes {taken:,} tokens, the KV cache of a replica {held:,} at most"


def _chosen(settings: Settings, name: str) -> str:
    return (
        f"{getattr(settings, _CHOSEN[name]):g}"
        if name == "gpu_memory_utilization"
        else str(getattr(settings, _CHOSEN[name]))
    )

"""Which GPUs of this machine a node gets: free ones, linked ones first, and so that links are left for the next."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

from fleetctl.errors import CapacityError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from fleetctl_local.gpus import Gpu, GpuReading

_UNKNOWN_DISTANCE = 60  # farther than NVML's farthest, which is 50: through both processors
_AGAIN_S = 5.0  # a GPU of this machine is free as soon as another replica or program on it has ended
_SETS_MAX = 20_000  # 16 GPUs have 12,870 sets of eight


def pick_gpus(
    count: int, *, there: GpuReading, taken: Collection[str], memory_fraction: float = 0.0
) -> tuple[Gpu, ...]:
    """Return `count` GPUs nobody has; none on a machine without GPUs.

    `taken` are the uuids that other nodes have; `memory_fraction` of a GPU's memory must be free of other programs'.
    Raises CapacityError, with what each has, when there are GPUs and not enough of them are free.
    """
    if not there.gpus or not count:
        return ()
    free = [gpu for gpu in there.gpus if gpu.uuid not in taken and is_roomy(gpu, memory_fraction)]
    # A process computes on one MIG instance at most.
    usable = free if count == 1 else [gpu for gpu in free if not gpu.is_mig]
    if len(usable) < count:
        hint = _hint(there, taken, memory_fraction)
        raise CapacityError(_too_few(count, there, free, taken), again_s=_AGAIN_S, hint=hint)
    return _nearest(count, usable, there)


def is_roomy(gpu: Gpu, memory_fraction: float) -> bool:
    """Whether other programs leave an engine what it takes of a GPU's memory."""
    return gpu.free_bytes >= memory_fraction * gpu.memory_bytes


def _nearest(count: int, free: Sequence[Gpu], there: GpuReading) -> tuple[Gpu, ...]:
    """Return the set closest together; of equal ones that whose members leave the fewest neighbours without it."""
    if comb(len(free), count) > _SETS_MAX:
        free = free[: count + 4]
    ranked = min(
        combinations(free, count),
        key=lambda chosen: (
            sum(_apart(there, one, other) for one, other in combinations(chosen, 2)),
            _parted(chosen, free, there),
            [free.index(gpu) for gpu in chosen],
        ),
    )
    return tuple(ranked)


def _parted(chosen: Sequence[Gpu], free: Sequence[Gpu], there: GpuReading) -> int:
    """Return how many close pairs are broken by taking these and leaving the other free ones."""
    closest = min((_apart(there, a, b) for a, b in combinations(free, 2)), default=_UNKNOWN_DISTANCE)
    left = [gpu for gpu in free if gpu not in chosen]
    return sum(_apart(there, one, other) == closest for one in chosen for other in left)


def _apart(there: GpuReading, one: Gpu, other: Gpu) -> int:
    distance = there.distance(one, other)
    return _UNKNOWN_DISTANCE if distance is None else distance


def _too_few(count: int, there: GpuReading, free: Sequence[Gpu], taken: Collection[str]) -> str:
    needed = "1 GPU is" if count == 1 else f"{count} GPUs are"
    text = f"{needed} needed, and {len(free)} of this machine's {len(there.gpus)} are free"
    if count > 1 and any(gpu.is_mig for gpu in free):
        text += ", MIG instances among them, of which an engine can use one"
    crowded = [gpu.use() for gpu in there.gpus if gpu not in free and gpu.uuid not in taken]
    return "; ".join([text, *crowded])


def _hint(there: GpuReading, taken: Collection[str], memory_fraction: float) -> str:
    if any(gpu.uuid not in taken and not is_roomy(gpu, memory_fraction) for gpu in there.gpus):
        return (
            f"end what uses them, or have the engine take less than {memory_fraction:.0%} of a GPU "
            "(launch: {gpu_memory_utilization: ...})"
        )
    return "stop a replica, or plan fewer on this machine"

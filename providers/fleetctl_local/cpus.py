"""The processors and the memory of this machine, and what of them a replica gets where there are no GPUs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.processors import usable_cpus
from fleetctl_local import kernel
from fleetctl_local.machine import memory_left

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.cpu_share import CpuShare

_TOPOLOGY = Path("/sys/devices/system/cpu")
_GIB = 2**30
# The rest is for what else starts here, and for the page cache, through which weights are read.
_SHARED_OUT = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuReading:
    """What this user may compute with here."""

    cpus: tuple[
        int, ...
    ]  # logical CPUs, those of one core and of one socket beside each other; empty: cannot be pinned
    count: int  # that may be busy at once: a container may be held to fewer than it sees; at least 1
    memory_bytes: int  # free, and what the replicas that share it have of it already; 0: not known


CpuReader = Callable[[], CpuReading]


def machine_cpus() -> CpuReading:
    """Read them, and the limits of the container this runs in, if it does; no replica has any of its memory yet."""
    cpus = sorted(os.sched_getaffinity(0), key=_place) if kernel.IS_LINUX else []
    return CpuReading(
        cpus=tuple(cpus),
        count=usable_cpus(),
        memory_bytes=memory_left() or 0,
    )


def cores_each(share: CpuShare, there: CpuReading) -> int:
    """Return how many logical CPUs each replica has to itself; 0: there are fewer of them than replicas."""
    return there.count // max(1, share.parts)


def pick_cpus(share: CpuShare, there: CpuReading, taken: Iterable[int]) -> tuple[int, ...]:
    """Return the CPUs a new replica may run on; none where there are too few for each to have its own.

    `taken` are those of the other nodes, each as often as it is had. Beyond the planned replicas (one more during a
    rollout, another fleet's) the CPUs that the fewest have are shared.
    """
    holders = Counter(taken)
    position = {cpu: index for index, cpu in enumerate(there.cpus)}
    ranked = sorted(there.cpus, key=lambda cpu: (holders[cpu], position[cpu]))
    return tuple(sorted(ranked[: cores_each(share, there)], key=position.__getitem__))


def left_for_kv_bytes(share: CpuShare, there: CpuReading) -> int:
    """Return what a replica's part of the memory leaves for its KV cache; negative: the weights alone are too large.

    Room is left for what a rollout starts beside the planned replicas, unless the cache would then hold too little.
    """
    surged = _left_bytes(share, there, is_surged=True)
    return surged if surges_fit(share, there) else _left_bytes(share, there, is_surged=False)


def surges_fit(share: CpuShare, there: CpuReading) -> bool:
    """Whether the memory holds what a rollout starts beside the planned replicas too."""
    least = max(share.kv_bytes_min, _GIB if share.kv_space_env else 0)
    return _left_bytes(share, there, is_surged=True) >= least


def _left_bytes(share: CpuShare, there: CpuReading, *, is_surged: bool) -> int:
    parts = max(1, share.parts) + (share.surge if is_surged else 0)
    fixed = share.fixed_bytes_all or max(1, share.parts) * share.fixed_bytes
    return (int(_SHARED_OUT * there.memory_bytes) - fixed - (share.surge_fixed_bytes if is_surged else 0)) // parts


def share_environment(share: CpuShare, there: CpuReading) -> dict[str, str]:
    """Return what tells an engine of its share."""
    variables = {}
    if share.threads_env:
        variables[share.threads_env] = str(max(1, cores_each(share, there)))
    if share.kv_space_env and there.memory_bytes:
        variables[share.kv_space_env] = str(max(1, left_for_kv_bytes(share, there) // _GIB))
    return variables


def _place(cpu: int) -> tuple[int, int, int]:
    return (
        _number(_TOPOLOGY / f"cpu{cpu}/topology/physical_package_id"),
        _number(_TOPOLOGY / f"cpu{cpu}/topology/core_id"),
        cpu,
    )


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # some virtual machines have no topology
        return 0

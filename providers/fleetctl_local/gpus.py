"""Which GPUs this machine has, and which of them a node gets."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fleetctl.errors import CapacityError

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_DEVICES = Path("/dev")
_GPU_DEVICE = re.compile(r"nvidia(\d+)")


def machine_gpus() -> tuple[int, ...]:
    """Return the indices of the GPUs the driver shows here, in order; those CUDA_VISIBLE_DEVICES names, if it is set."""
    there = sorted(int(m[1]) for entry in _DEVICES.iterdir() if (m := _GPU_DEVICE.fullmatch(entry.name)))
    visible = os.environ.get(VISIBLE_GPUS)
    if visible is None:
        return tuple(there)
    return tuple(int(word) for word in visible.split(",") if word.strip().isdigit() and int(word) in there)


def pick_gpus(count: int, *, there: tuple[int, ...], taken: frozenset[int]) -> tuple[int, ...]:
    """Return `count` GPUs nobody has; none on a machine without GPUs, whose engines are emulated.

    Raises CapacityError when there are GPUs and not enough are free.
    """
    free = [index for index in there if index not in taken]
    if not there or len(free) >= count:
        return tuple(free[:count])
    raise CapacityError(
        f"{count} GPUs are needed, and {len(free)} of this machine's {len(there)} are free",
        hint="stop a replica, or plan fewer on this machine",
    )

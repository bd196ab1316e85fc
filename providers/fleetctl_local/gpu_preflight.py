"""Whether the GPUs of this machine suffice for a plan: each replica's own are chosen as they will be when it starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fleetctl.errors import CapacityError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl_local.gpu_choice import is_roomy, pick_gpus
from fleetctl_local.gpus import VISIBLE_GPUS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.preflight import PlannedNodes
    from fleetctl_local.gpus import GpuReading

_NAME = "GPUs"
_MEND_DRIVER = (
    "`nvidia-smi` has to list them for this user: look at /dev/nvidia* and the driver; containers need --gpus all"
)
_IDLE = 0.1  # of a GPU's memory: a display, and what the driver keeps for itself


def judge(nodes: tuple[PlannedNodes, ...], *, gpus: GpuReading, taken: Mapping[str, str]) -> Finding:
    """Return the finding about GPUs; `taken` says whose one is, by its uuid."""
    needed = sum(each.gpu_count * each.to_create for each in nodes)
    shown = _shown(gpus, taken, max((each.gpu_memory_fraction for each in nodes), default=0.0))
    if gpus.problem and not gpus.gpus and not nodes:
        # Somebody looks at the machine, and no fleet says that it needs none of them.
        return Finding(name=_NAME, verdict=Verdict.WARN, detail=shown, hint=_MEND_DRIVER)
    if not needed:
        return Finding(name=_NAME, verdict=Verdict.OK, detail="; ".join([shown, *_others(gpus, taken), "none needed"]))
    wanted = f"{shown}, and {needed} {'is' if needed == 1 else 'are'} to be pinned"
    if not gpus.gpus:
        # Whether an engine runs without is its own affair: some are built for the CPU.
        found = f"{wanted}: engines get none"
        hint = "an engine that needs them ends at its start: use the emulator, or a machine with GPUs"
        hint = f"{_MEND_DRIVER}; {hint}" if gpus.problem else hint
        return Finding(name=_NAME, verdict=Verdict.WARN, detail=found, hint=hint)
    try:
        pinned = _assigned(nodes, gpus, taken)
    except CapacityError as exc:
        held = [f"{gpu.label} has {taken[gpu.uuid]}" for gpu in gpus.gpus if gpu.uuid in taken]
        found = "; ".join([f"{wanted}: {exc.message}", *held])
        return Finding(name=_NAME, verdict=Verdict.FAIL, detail=found, hint=f"{exc.hint}; or widen {VISIBLE_GPUS}")
    if any(uuid.startswith("MIG-") for uuid in pinned):
        hint = "update it if it ends at its start with `invalid literal for int()`"
        found = f"{wanted}, MIG instances among them, which versions of vLLM up to 0.20 and some later cannot be given"
        return Finding(name=_NAME, verdict=Verdict.WARN, detail=found, hint=hint)
    return Finding(name=_NAME, verdict=Verdict.OK, detail=wanted)


def _assigned(nodes: tuple[PlannedNodes, ...], gpus: GpuReading, taken: Mapping[str, str]) -> set[str]:
    """Return the uuids the replicas to create get, the largest first. Raises CapacityError."""
    pinned: set[str] = set()
    for each in sorted(nodes, key=lambda n: -n.gpu_count):
        for _ in range(each.to_create):
            chosen = pick_gpus(
                each.gpu_count, there=gpus, taken=pinned | taken.keys(), memory_fraction=each.gpu_memory_fraction
            )
            pinned.update(gpu.uuid for gpu in chosen)
    return pinned


def _others(gpus: GpuReading, taken: Mapping[str, str]) -> list[str]:
    """Return what other programs have of GPUs that no replica has."""
    return [gpu.use() for gpu in gpus.gpus if gpu.uuid not in taken and gpu.used_bytes > _IDLE * gpu.memory_bytes]


def _shown(gpus: GpuReading, taken: Mapping[str, str], memory_fraction: float) -> str:
    free = [gpu for gpu in gpus.gpus if gpu.uuid not in taken and is_roomy(gpu, memory_fraction)]
    shown = f"{len(free)} of {len(gpus.gpus)} free" if gpus.gpus else "none on this machine"
    visible = os.environ.get(VISIBLE_GPUS)
    notes = [f"{VISIBLE_GPUS}={visible}"] if visible is not None else []
    notes += [f"{gpus.source}: {gpus.problem}"] if gpus.problem else []
    return f"{shown} ({'; '.join(notes)})" if notes else shown

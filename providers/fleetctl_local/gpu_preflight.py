"""Whether the GPUs of this machine suffice for a plan: each replica's own are chosen as they will be when it starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fleetctl.errors import CapacityError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl_local.gpu_choice import pick_gpus
from fleetctl_local.gpus import VISIBLE_GPUS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.preflight import PlannedNodes
    from fleetctl_local.gpus import GpuReading

_NAME = "GPUs"


def judge(nodes: tuple[PlannedNodes, ...], *, gpus: GpuReading, taken: Mapping[str, str]) -> Finding:
    """Return the finding about GPUs; `taken` says whose one is, by its uuid."""
    needed = sum(each.gpu_count * each.to_create for each in nodes)
    shown = _shown(gpus, taken)
    if not needed:
        return Finding(name=_NAME, verdict=Verdict.OK, detail=f"{shown}; none needed")
    wanted = f"{shown}, and {needed} are to be pinned"
    if not gpus.gpus:
        # Whether an engine runs without is its own affair: some are built for the CPU.
        found = f"{wanted}: engines get none"
        hint = "an engine that needs them ends at its start: use the emulator, or a machine with GPUs"
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


def _shown(gpus: GpuReading, taken: Mapping[str, str]) -> str:
    free = [gpu for gpu in gpus.gpus if gpu.uuid not in taken]
    shown = f"{len(free)} of {len(gpus.gpus)} free" if gpus.gpus else "none on this machine"
    visible = os.environ.get(VISIBLE_GPUS)
    notes = [f"{VISIBLE_GPUS}={visible}"] if visible is not None else []
    notes += [f"{gpus.source}: {gpus.problem}"] if gpus.problem else []
    return f"{shown} ({'; '.join(notes)})" if notes else shown

"""The GPUs of this machine: what each is, what of it is free, how they are linked, and what an engine is told to see."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
# CUDA counts by speed unless it is told to; NVML and nvidia-smi count by PCI bus, and so do the indices here.
GPU_ORDER, BY_BUS = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or a MIG instance of one."""

    uuid: str  # "GPU-..." or "MIG-...": the same after a restart, whatever else is plugged in
    index: int  # of its board, by PCI bus
    name: str  # as the driver says it: "NVIDIA H100 80GB HBM3"
    memory_bytes: int
    free_bytes: int
    users: tuple[str, ...] = ()  # processes that compute on it, "python3 (pid 4711)"; those that can be seen
    memory_bytes_per_s: float = 0.0  # 0: the driver does not say
    flops: float = 0.0  # dense 16-bit FLOP/s on the tensor cores; 0: the driver does not say enough
    has_bf16: bool = True  # the driver need not say
    has_fp8: bool = False
    is_mig: bool = False

    @property
    def visible_as(self) -> str:
        """Return its entry in CUDA_VISIBLE_DEVICES: an index, as engines read it as a number; a MIG instance has none."""
        return self.uuid if self.is_mig else str(self.index)

    @property
    def used_bytes(self) -> int:
        """Return what is in use of its memory, by whomever."""
        return max(0, self.memory_bytes - self.free_bytes)

    @property
    def label(self) -> str:
        """Return how messages name it."""
        return f"GPU {self.index} ({self.uuid})" if self.is_mig else f"GPU {self.index}"

    def use(self) -> str:
        """Return in words what is in use of it, and by whom as far as that can be seen."""
        whose = f" by {', '.join(self.users)}" if self.users else ""
        used, memory = format_bytes(self.used_bytes), format_bytes(self.memory_bytes)
        return f"{self.label}: {used} of {memory} in use{whose}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One look at the GPUs of this machine."""

    gpus: tuple[Gpu, ...] = ()  # in PCI order
    # How far apart two of them are, by their uuids in order: 0 is NVLink. Pairs of which nothing is known are not in it.
    distances: dict[tuple[str, str], int] = field(default_factory=dict)
    source: str = ""  # "NVML", "nvidia-smi"; empty: there is no driver
    problem: str = ""  # why nothing is known, where there is a driver

    def distance(self, one: Gpu, other: Gpu) -> int | None:
        """Return how far apart two GPUs are; None: not known."""
        return self.distances.get((min(one.uuid, other.uuid), max(one.uuid, other.uuid)))


GpuReader = Callable[[], GpuReading]


def machine_gpus() -> GpuReading:
    """Return the GPUs the driver shows here, by NVML or else nvidia-smi; those CUDA_VISIBLE_DEVICES names, if it is set."""
    # Each is looked for only when it is needed: neither is imported by a command that plans nothing.
    from fleetctl_local import nvidia_smi, nvml

    reading = nvml.read()
    if not reading.gpus:
        other = nvidia_smi.read()
        reading = other if other.gpus or not reading.source else reading
    return visible_of(reading, os.environ.get(VISIBLE_GPUS))


def visible_of(reading: GpuReading, visible: str | None) -> GpuReading:
    """Return what is left under a value of CUDA_VISIBLE_DEVICES, read as CUDA does: what comes after a word that names none is not seen."""
    if visible is None:
        return reading
    seen: list[Gpu] = []
    for word in (part.strip() for part in visible.split(",")):
        gpu = _named(word, reading.gpus)
        if gpu is None:
            break
        seen.append(gpu)
    kept = tuple(gpu for gpu in reading.gpus if gpu in seen)
    return GpuReading(gpus=kept, distances=reading.distances, source=reading.source, problem=reading.problem)


def _named(word: str, gpus: Iterable[Gpu]) -> Gpu | None:
    """Return the GPU of an index or of the beginning of a uuid."""
    if word.isdigit():
        return next((gpu for gpu in gpus if gpu.index == int(word) and not gpu.is_mig), None)
    found = [gpu for gpu in gpus if gpu.uuid.startswith(word)] if word.startswith(("GPU-", "MIG-")) else []
    return found[0] if len(found) == 1 else None

"""What a plan reckons with for the GPUs of this machine: the catalogue's figures where it knows them, else the driver's."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.catalogue.known import load_catalogue
from fleetctl.model.catalogue import GpuSpec, Precision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl_local.gpus import Gpu, GpuReading

# Memory is reserved for ECC and the firmware in parts that differ by driver; variants of one card differ by more.
_MEMORY_ALIKE, _BANDWIDTH_ALIKE = 0.05, 0.15
_MAKER = re.compile(r"^(NVIDIA|Tesla|Quadro)\s+", re.IGNORECASE)
# Where the driver says neither, as nvidia-smi alone does: of the slowest card in the catalogue with that much memory.
_BYTES_PER_S_MIN, _FLOPS_MIN = 300e9, 60e12


def specs_of(reading: GpuReading) -> dict[str, tuple[GpuSpec, int, bool]]:
    """Return this machine's GPUs by the name a plan gives them: figures, how many, whether several make one replica."""
    known = load_catalogue().gpus
    found: dict[str, tuple[GpuSpec, int, bool]] = {}
    for gpu in reading.gpus:
        spec = spec_of(gpu, known, source=reading.source)
        _, count, _ = found.get(spec.name, (spec, 0, True))
        found[spec.name] = (spec, count + 1, not gpu.is_mig)
    linked = {uuid for pair, apart in reading.distances.items() if apart == 0 for uuid in pair}
    if reading.distances and not linked:
        # A card that is sold with NVLink may stand in a machine without.
        found = {
            name: (replace(spec, interconnect_bytes_per_s=0.0), count, joinable)
            for name, (spec, count, joinable) in found.items()
        }
    return found


def spec_of(gpu: Gpu, known: Mapping[str, GpuSpec], *, source: str) -> GpuSpec:
    """Return the catalogue's GPU of that name, memory and bandwidth, or one of the driver's own figures."""
    parts = set(re.split(r"[\s-]+", gpu.name.upper()))
    alike = [
        spec for name, spec in known.items()
        if not gpu.is_mig and _name_parts(name) <= parts and _is_alike(gpu, spec)
    ]  # fmt: skip
    if not alike:
        return _own(gpu, source)
    # "RTX PRO 6000 Server" and "RTX PRO 6000" are both in a Server Edition's name: the longer says more.
    return min(alike, key=lambda spec: (-len(_name_parts(spec.name)), abs(spec.memory_bytes - gpu.memory_bytes)))


def _name_parts(name: str) -> set[str]:
    """Return the parts of a catalogue's name; its size is left out, for that the memory says."""
    return {part for part in re.split(r"[\s-]+", name.upper()) if not re.fullmatch(r"\d+GB", part)}


def _is_alike(gpu: Gpu, spec: GpuSpec) -> bool:
    of_memory = abs(gpu.memory_bytes / spec.memory_bytes - 1)
    of_bandwidth = abs(gpu.memory_bytes_per_s / spec.memory_bytes_per_s - 1) if gpu.memory_bytes_per_s else 0.0
    return of_memory <= _MEMORY_ALIKE and of_bandwidth <= _BANDWIDTH_ALIKE


def _own(gpu: Gpu, source: str) -> GpuSpec:
    flops = gpu.flops or _FLOPS_MIN
    formats = {Precision.BF16.value: flops, Precision.FP16.value: flops}
    is_known = bool(gpu.flops and gpu.memory_bytes_per_s)
    return GpuSpec(
        name=re.sub(r"[^A-Za-z0-9.]+", "-", _MAKER.sub("", gpu.name)).strip("-"),
        memory_bytes=gpu.memory_bytes,
        memory_bytes_per_s=gpu.memory_bytes_per_s or _BYTES_PER_S_MIN,
        flops=formats | ({Precision.FP8.value: 2 * flops} if gpu.has_fp8 else {}),
        source=f"what {source} says"
        if is_known
        else f"its memory alone, as {source} says no more, and a slow card's figures",
    )

"""What a plan reckons with for the GPUs of this machine: the catalogue's figures where it knows them, else the driver's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.catalogue.known import load_catalogue
from fleetctl.catalogue.machine_gpus import driver_spec, known_spec
from fleetctl.model.catalogue import Precision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.catalogue import GpuSpec
    from fleetctl_local.gpus import Gpu, GpuReading


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
    memory_bytes, memory_bytes_per_s = gpu.memory_bytes, gpu.memory_bytes_per_s
    found = None
    if not gpu.is_mig:
        found = known_spec(gpu.name, memory_bytes=memory_bytes, memory_bytes_per_s=memory_bytes_per_s, known=known)
    return found or driver_spec(
        gpu.name,
        memory_bytes=memory_bytes,
        memory_bytes_per_s=memory_bytes_per_s,
        flops=gpu.flops,
        formats=[each for each, has in ((Precision.BF16, gpu.has_bf16), (Precision.FP8, gpu.has_fp8)) if has],
        source=source,
    )

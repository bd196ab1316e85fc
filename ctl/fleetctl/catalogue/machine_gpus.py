"""What a plan reckons with for a GPU that a driver shows: the catalogue's figures where it knows it, else the driver's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import GpuSpec, Precision

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# Memory is reserved for ECC and the firmware in parts that differ by driver; variants of one card differ by more.
_MEMORY_ALIKE, _BANDWIDTH_ALIKE = 0.05, 0.15
_MAKER = re.compile(r"^(NVIDIA|Tesla|Quadro)\s+", re.IGNORECASE)
# Where the driver says neither, as nvidia-smi alone does: of the slowest card in the catalogue with that much memory.
_BYTES_PER_S_MIN, _FLOPS_MIN = 300e9, 60e12


def known_spec(
    name: str, *, memory_bytes: int, memory_bytes_per_s: float, known: Mapping[str, GpuSpec]
) -> GpuSpec | None:
    """Return the catalogue's GPU of a driver's name ("NVIDIA H100 80GB HBM3"), memory and bandwidth (0: not said)."""
    parts = set(re.split(r"[\s-]+", name.upper()))
    alike = [
        spec
        for listed, spec in known.items()
        if _name_parts(listed) <= parts
        and abs(memory_bytes / spec.memory_bytes - 1) <= _MEMORY_ALIKE
        and (not memory_bytes_per_s or abs(memory_bytes_per_s / spec.memory_bytes_per_s - 1) <= _BANDWIDTH_ALIKE)
    ]
    # "RTX PRO 6000 Server" and "RTX PRO 6000" are both in a Server Edition's name: the longer says more.
    return min(
        alike, key=lambda spec: (-len(_name_parts(spec.name)), abs(spec.memory_bytes - memory_bytes)), default=None
    )


def _name_parts(name: str) -> set[str]:
    """Return the parts of a catalogue's name; its size is left out, for that the memory says."""
    return {part for part in re.split(r"[\s-]+", name.upper()) if not re.fullmatch(r"\d+GB", part)}


def driver_spec(
    name: str,
    *,
    memory_bytes: int,
    memory_bytes_per_s: float,
    flops: float,
    formats: Collection[Precision],
    source: str,
) -> GpuSpec:
    """Return a GPU of the driver's own figures; of a slow card's where it says none (0).

    `formats` are the ones it computes in beside FP16, which all do.
    """
    reckoned = flops or _FLOPS_MIN
    found = {each.value: reckoned * (2 if each is Precision.FP8 else 1) for each in (Precision.FP16, *formats)}
    is_known = bool(flops and memory_bytes_per_s)
    return GpuSpec(
        name=re.sub(r"[^A-Za-z0-9.]+", "-", _MAKER.sub("", name)).strip("-"),
        memory_bytes=memory_bytes,
        memory_bytes_per_s=memory_bytes_per_s or _BYTES_PER_S_MIN,
        flops=found,
        source=f"what {source} says"
        if is_known
        else f"its memory alone, as {source} says no more, and a slow card's figures",
    )

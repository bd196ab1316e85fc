"""The GPU instance types of a region: their cards by the catalogue's names, and the zones that have them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleetctl.model.catalogue import GpuSpec
    from fleetctl_aws.connection import AwsConnection

Object = dict[str, Any]
_MIB = 2**20
# A driver shows somewhat less of a card's memory than its data sheet.
_MEMORY_WITHIN = 0.15
_SIZE = re.compile(r"\d+GB")
_GPU_FAMILIES = ("g*", "p*")  # of all types, those that may have GPUs for this
_FILTER_VALUES_MAX = 200  # the most that EC2 takes
_ARCHITECTURE = "x86_64"  # of the machine image


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInstanceType:
    """One instance type with whole NVIDIA GPUs."""

    name: str
    gpu: str  # as the catalogue calls it
    gpu_count: int
    vcpus: int
    markets: frozenset[str]  # "on-demand", "spot"
    zones: tuple[str, ...] = ()


async def gpu_instance_types(connection: AwsConnection, known: Mapping[str, GpuSpec]) -> tuple[GpuInstanceType, ...]:
    """Return those that the region offers, each with its zones; cards of which no catalogue knows are left out."""
    described = await connection.read_all(
        "ec2", "describe_instance_types", "InstanceTypes",
        Filters=[{"Name": "instance-type", "Values": list(_GPU_FAMILIES)}],
    )  # fmt: skip
    found = {kind.name: kind for item in described if (kind := _read(item, known)) is not None}
    zones = await _zones(connection, sorted(found))
    return tuple(
        GpuInstanceType(
            name=kind.name, gpu=kind.gpu, gpu_count=kind.gpu_count, vcpus=kind.vcpus, markets=kind.markets,
            zones=tuple(sorted(zones[name])),
        )
        for name, kind in sorted(found.items())
        if zones.get(name)
    )  # fmt: skip


def gpu_name(name: str, memory_bytes: int, known: Iterable[GpuSpec]) -> str:
    """Return the catalogue's name of a card by AWS's ("A100") and its memory; empty where the catalogue has none."""
    parts = frozenset(re.split(r"[ -]", name.upper()))
    near = [
        (abs(spec.memory_bytes - memory_bytes), spec.name)
        for spec in known
        if {word for word in re.split(r"[ -]", spec.name.upper()) if not _SIZE.fullmatch(word)} == parts
        and abs(spec.memory_bytes - memory_bytes) <= _MEMORY_WITHIN * memory_bytes
    ]
    return min(near)[1] if near else ""


def _read(item: Object, known: Mapping[str, GpuSpec]) -> GpuInstanceType | None:
    architectures = item.get("ProcessorInfo", {}).get("SupportedArchitectures") or (_ARCHITECTURE,)
    gpus = [gpu for gpu in item.get("GpuInfo", {}).get("Gpus") or () if gpu.get("Manufacturer") == "NVIDIA"]
    if len(gpus) != 1 or _ARCHITECTURE not in architectures or int(gpus[0].get("Count", 0)) < 1:
        return None
    memory_bytes = int(gpus[0].get("MemoryInfo", {}).get("SizeInMiB", 0)) * _MIB
    gpu = gpu_name(str(gpus[0].get("Name", "")), memory_bytes, known.values())
    if not gpu or item.get("BareMetal"):
        return None
    return GpuInstanceType(
        name=item["InstanceType"],
        gpu=gpu,
        gpu_count=int(gpus[0]["Count"]),
        vcpus=int(item.get("VCpuInfo", {}).get("DefaultVCpus", 0)),
        markets=frozenset(item.get("SupportedUsageClasses") or ("on-demand", "spot")),
    )


async def _zones(connection: AwsConnection, names: list[str]) -> dict[str, set[str]]:
    zones: dict[str, set[str]] = {}
    for first in range(0, len(names), _FILTER_VALUES_MAX):
        offered = await connection.read_all(
            "ec2", "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": names[first : first + _FILTER_VALUES_MAX]}],
        )  # fmt: skip
        for each in offered:
            zones.setdefault(each["InstanceType"], set()).add(each["Location"])
    return zones

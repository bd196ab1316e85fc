"""What the machines of an inventory offer: their GPUs, in shares, at their part of the machine's price."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.catalogue.known import load_catalogue
from fleetctl.catalogue.machine_gpus import driver_spec, known_spec
from fleetctl.model.catalogue import Market, Offering, Precision
from fleetctl_ssh.inventory import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleetctl.model.catalogue import GpuSpec

REGION = "ssh"
_BOOT_S = 1.0  # a process is there at once; the engine's own start is not a node's
_SOURCE = "nvidia-smi"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReport:
    """What was found on one machine."""

    machine: Machine
    gpus: tuple[dict[str, Any], ...]  # index, uuid, name, memory_bytes, free_bytes, is_others


def offerings_of(reports: tuple[MachineReport, ...]) -> tuple[Offering, ...]:
    """Return one, two, four ... of each machine's GPUs, and all of them; a machine is a zone, as it fails as one.

    A GPU that other people's processes fill is no part of it.
    """
    known = load_catalogue().gpus
    kinds = {report.machine.name: _kinds(report, known) for report in reports}
    there: dict[str, int] = defaultdict(int)  # of all machines: a lane takes from all of them
    for each in kinds.values():
        for name, (_, count) in each.items():
            there[name] += count
    return tuple(
        offering
        for report in reports
        for name, (spec, count) in sorted(kinds[report.machine.name].items())
        for offering in _shares(report, spec, count, there=there[name], is_known=name in known)
    )


def _kinds(report: MachineReport, known: Mapping[str, GpuSpec]) -> dict[str, tuple[GpuSpec, int]]:
    found: dict[str, tuple[GpuSpec, int]] = {}
    for gpu in report.gpus:
        if gpu["is_others"]:
            continue
        memory_bytes = gpu["memory_bytes"]
        spec = known_spec(gpu["name"], memory_bytes=memory_bytes, memory_bytes_per_s=0.0, known=known) or driver_spec(
            gpu["name"],
            memory_bytes=memory_bytes,
            memory_bytes_per_s=0.0,
            flops=0.0,
            formats=(Precision.BF16,),
            source=_SOURCE,
        )
        found[spec.name] = spec, found.get(spec.name, (spec, 0))[1] + 1
    return found


def _shares(report: MachineReport, spec: GpuSpec, count: int, *, there: int, is_known: bool) -> Iterator[Offering]:
    for share in sorted({1, count, *(2**n for n in range(count.bit_length()) if 2**n <= count)}):
        yield Offering(
            provider="ssh",
            instance_type=f"{share}x{spec.name}",
            gpu=spec.name,
            gpu_count=share,
            region=REGION,
            zone=report.machine.name,
            market=Market.ON_DEMAND,
            price_usd_per_hour=report.machine.price_usd_per_hour * share / len(report.gpus),
            boot_s=_BOOT_S,
            pool_gpus=there,
            gpu_spec=None if is_known else spec,
        )

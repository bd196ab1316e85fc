"""Whether the machines of the inventory can be used: each by its name."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from fleetctl.errors import ProviderError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl.units import format_bytes

if TYPE_CHECKING:
    from fleetctl.model.preflight import PlannedNodes
    from fleetctl_ssh.machines import MachineWatch

_DEADLINE_S = 25.0  # a driver may initialise its cards first
_DISK_LEAST, _DISK_AT_EASE = 64 * 2**20, 2**30


async def judge(machines: tuple[MachineWatch, ...], nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
    """Return a finding for each machine, and one for the GPUs that are planned on them."""
    looked = await asyncio.gather(*(_look(machine) for machine in machines))
    findings = [finding for finding, _ in looked]
    free = {machine.machine.name: count for machine, (_, count) in zip(machines, looked, strict=True)}
    return (*findings, _gpus(nodes, free)) if nodes else tuple(findings)


async def _look(machine: MachineWatch) -> tuple[Finding, int]:
    """Return what is to be said of one, and how many GPUs it has."""
    name = f"machine {machine.machine.name}"
    try:
        found = await machine.connection.call("look", {}, deadline_s=_DEADLINE_S)
    except ProviderError as exc:
        hint = exc.hint or "mend it, or take it out of the inventory"
        return Finding(name=name, verdict=Verdict.FAIL, detail=exc.message, hint=hint), 0
    count, free = len(found["gpus"]), found["disk_free_bytes"]
    kinds = Counter(gpu["name"] for gpu in found["gpus"])
    gpus = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) or "no GPU"
    detail = f"{gpus}; {format_bytes(free)} free at {found['directory']}; Python {found['python']}"
    if machine.machine.labels:
        detail += "; " + ", ".join(f"{name}={value}" for name, value in sorted(machine.machine.labels.items()))
    if found["problem"]:
        detail += f"; nvidia-smi: {found['problem']}"
    verdict, hint = _verdict(found, count, free)
    return Finding(name=name, verdict=verdict, detail=detail, hint=hint), count


def _verdict(found: dict[str, object], count: int, disk_free_bytes: int) -> tuple[Verdict, str]:
    if not found["is_writable"]:
        return (
            Verdict.FAIL,
            f"{found['directory']} there cannot be written: mend its owner, or set XDG_STATE_HOME there",
        )
    if disk_free_bytes < _DISK_LEAST:
        return Verdict.FAIL, "its disk is full: make room"
    if found["ends_with_login"]:
        return Verdict.FAIL, "systemd ends its user's processes with the last login: `loginctl enable-linger` there"
    if not count:
        return Verdict.WARN, "replicas are put on GPUs alone: `nvidia-smi` there has to list some"
    if disk_free_bytes < _DISK_AT_EASE:
        return Verdict.WARN, "logs and weights may fill its disk: make room"
    return Verdict.OK, ""


def _gpus(nodes: tuple[PlannedNodes, ...], there: dict[str, int]) -> Finding:
    wanted: Counter[str] = Counter()
    for each in nodes:
        wanted[each.offering.zone] += each.count * each.offering.gpu_count
    needed, counted = sum(wanted.values()), sum(there.values())
    detail = f"{counted} on {len(there)} machines, and {needed} are planned"
    if needed > counted:
        hint = "plan fewer replicas, or add machines to the inventory"
        return Finding(name="GPUs", verdict=Verdict.FAIL, detail=detail, hint=hint)
    return Finding(name="GPUs", verdict=Verdict.OK, detail=detail)

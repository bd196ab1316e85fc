"""Whether the machines of the inventory can be used: each by its name."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ProviderError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl.units import format_bytes

if TYPE_CHECKING:
    from fleetctl.model.preflight import PlannedNodes
    from fleetctl_ssh.machines import MachineWatch

Object = dict[str, Any]
_DEADLINE_S = 25.0  # a driver may initialise its cards first
_DISK_LEAST, _DISK_AT_EASE = 64 * 2**20, 2**30


async def judge(machines: tuple[MachineWatch, ...], nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
    """Return a finding for each machine, one for those that are one machine, and one for the GPUs that are planned on them."""
    looked = await asyncio.gather(*(_look(machine) for machine in machines))
    findings = [finding for finding, _ in looked]
    gpus_of = {machine.machine.name: gpus for machine, (_, gpus) in zip(machines, looked, strict=True)}
    findings += _twins(gpus_of)
    return (*findings, _gpus(nodes, gpus_of)) if nodes else tuple(findings)


def _twins(gpus_of: dict[str, list[Object]]) -> list[Finding]:
    """Return who shows a GPU that another does too: one machine by two names, whose GPUs would be counted and listed twice."""
    names: dict[str, list[str]] = {}
    for name, gpus in gpus_of.items():
        for gpu in gpus:
            names.setdefault(gpu["uuid"], []).append(name)
    groups = sorted({" and ".join(each) for each in names.values() if len(each) > 1})
    hint = "take all but one out of the inventory"
    return [
        Finding(
            name="machines", verdict=Verdict.FAIL, detail=f"{each} are one machine: they have the same GPUs", hint=hint
        )
        for each in groups
    ]


async def _look(machine: MachineWatch) -> tuple[Finding, list[Object]]:
    """Return what is to be said of one, and its GPUs."""
    name = f"machine {machine.machine.name}"
    try:
        found = await machine.connection.call("look", {}, deadline_s=_DEADLINE_S)
    except ProviderError as exc:
        hint = exc.hint or "mend it, or take it out of the inventory"
        return Finding(name=name, verdict=Verdict.FAIL, detail=exc.message, hint=hint), []
    count, free = len(found["gpus"]), found["disk_free_bytes"]
    kinds = Counter(gpu["name"] for gpu in found["gpus"])
    gpus = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) or "no GPU"
    detail = f"{gpus}; {format_bytes(free)} free at {found['directory']}; Python {found['python']}"
    if machine.machine.labels:
        detail += "; " + ", ".join(f"{name}={value}" for name, value in sorted(machine.machine.labels.items()))
    if found["problem"]:
        detail += f"; nvidia-smi: {found['problem']}"
    if full := [str(gpu["index"]) for gpu in found["gpus"] if gpu["is_others"]]:
        detail += f"; other people's processes fill GPU {', '.join(full)}, which is not on offer meanwhile"
    verdict, hint = _verdict(found, count, free)
    return Finding(name=name, verdict=verdict, detail=detail, hint=hint), found["gpus"]


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


def _gpus(nodes: tuple[PlannedNodes, ...], gpus_of: dict[str, list[Object]]) -> Finding:
    wanted = sum(each.count * each.offering.gpu_count for each in nodes)
    there = [sum(not gpu["is_others"] for gpu in gpus) for gpus in gpus_of.values()]
    others = sum(map(len, gpus_of.values())) - sum(there)
    full = f" ({others} more are filled by other people's processes)" if others else ""
    detail = f"{sum(there)} on {sum(map(bool, there))} of {len(there)} machines{full}, and {wanted} are planned"
    if wanted > sum(there):
        hint = "plan fewer replicas, add machines to the inventory, or end what fills their GPUs"
        return Finding(name="GPUs", verdict=Verdict.FAIL, detail=detail, hint=hint)
    return Finding(name="GPUs", verdict=Verdict.OK, detail=detail)

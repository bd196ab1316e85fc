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

_DEADLINE_S = 25.0  # a driver may initialise its cards first
_DISK_LEAST, _DISK_AT_EASE = 64 * 2**20, 2**30


async def judge(machines: tuple[MachineWatch, ...], nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
    """Return a finding for each machine, one for those that are one machine, and one for the GPUs that are planned on them."""
    looked = await asyncio.gather(*(_look(machine) for machine in machines))
    findings = [finding for finding, _ in looked]
    uuids_of = {machine.machine.name: uuids for machine, (_, uuids) in zip(machines, looked, strict=True)}
    findings += _twins(uuids_of)
    return (
        (*findings, _gpus(nodes, {name: len(uuids) for name, uuids in uuids_of.items()})) if nodes else tuple(findings)
    )


def _twins(uuids_of: dict[str, list[str]]) -> list[Finding]:
    """Return who shows a GPU that another does too: one machine by two names, whose GPUs would be counted and listed twice."""
    names: dict[str, list[str]] = {}
    for name, uuids in uuids_of.items():
        for uuid in uuids:
            names.setdefault(uuid, []).append(name)
    groups = sorted({" and ".join(each) for each in names.values() if len(each) > 1})
    hint = "take all but one out of the inventory"
    return [
        Finding(
            name="machines", verdict=Verdict.FAIL, detail=f"{each} are one machine: they have the same GPUs", hint=hint
        )
        for each in groups
    ]


async def _look(machine: MachineWatch) -> tuple[Finding, list[str]]:
    """Return what is to be said of one, and its GPUs' UUIDs."""
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
    if full := _filled(found["gpus"]):
        detail += f"; of GPU {', '.join(full)} more than half of the memory is in use"
    verdict, hint = _verdict(found, count, free)
    return Finding(name=name, verdict=verdict, detail=detail, hint=hint), [gpu["uuid"] for gpu in found["gpus"]]


def _filled(gpus: list[dict[str, Any]]) -> list[str]:
    """Return the GPUs that somebody uses, engines of this or another fleet among them: one more finds no room there."""
    return [str(gpu["index"]) for gpu in gpus if gpu["free_bytes"] < gpu["memory_bytes"] / 2]


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
    detail = f"{counted} on {sum(map(bool, there.values()))} of {len(there)} machines, and {needed} are planned"
    if needed > counted:
        hint = "plan fewer replicas, or add machines to the inventory"
        return Finding(name="GPUs", verdict=Verdict.FAIL, detail=detail, hint=hint)
    return Finding(name="GPUs", verdict=Verdict.OK, detail=detail)

"""What of this machine would keep a fleet from running on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.preflight import Finding, Verdict
from fleetctl_local import cpu_preflight, gpu_preflight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.preflight import PlannedNodes
    from fleetctl_local.cpus import CpuReading
    from fleetctl_local.gpus import GpuReading
    from fleetctl_local.machine import MachineHeadroom

_MIB = 2**20
# Measured 2026-11-22 on Linux with the packaged quickstart, 6 emulated replicas at rest: the gateway holds 33
# descriptors, the controller 21; an engine is one process of 46 MiB, controller and gateway have 47 and 45 MiB; a
# process more is started to end each replica. A real engine takes more of everything, so these are least figures.
_FILES_BASE, _FILES_PER_REPLICA = 64, 4  # the gateway's own, and two requests a replica
_FILES_AT_EASE = 256  # a request holds two; engines run 128 and more at once
_PROCESSES_BASE, _PROCESSES_PER_REPLICA = 32, 2
_BYTES_BASE, _BYTES_PER_REPLICA = 96 * _MIB, 48 * _MIB
# A state file of a few days and its write-ahead log; a quiet fleet's logs are some kB an hour.
_DISK_BASE, _DISK_PER_REPLICA = 64 * _MIB, 1 * _MIB
_DISK_AT_EASE = 1024 * _MIB


def judge(
    nodes: tuple[PlannedNodes, ...],
    headroom: MachineHeadroom,
    *,
    gpus: GpuReading,
    taken: Mapping[str, str],
    cpus: CpuReading,
) -> tuple[Finding, ...]:
    """Return a finding for each limit; `taken` says whose a GPU is, by its uuid."""
    replicas, new = sum(n.count for n in nodes), sum(n.to_create for n in nodes)
    return (
        _open_files(replicas, headroom.open_files_max),
        _processes(new, headroom.processes_left),
        _memory(new, headroom.memory_left_bytes),
        _disk(replicas, headroom),
        gpu_preflight.judge(nodes, gpus=gpus, taken=taken),
        *cpu_preflight.judge(nodes, gpus=gpus, cpus=cpus),
    )


def _open_files(replicas: int, limit: int | None) -> Finding:
    name = "open files"
    if limit is None:
        return _ok(name, "no limit")
    least = _FILES_BASE + _FILES_PER_REPLICA * max(1, replicas)
    at_ease = _FILES_BASE + _FILES_AT_EASE * max(1, replicas)
    raise_it = f"raise the hard limit to {at_ease} (ulimit -Hn, or limits.conf) and start again"
    if limit < least:
        found = f"a process may hold {limit}, and a gateway for {_counted(replicas)} takes {least} and more"
        return Finding(name=name, verdict=Verdict.FAIL, detail=found, hint=raise_it)
    if limit < at_ease:
        found = f"a process may hold {limit}: at most {(limit - _FILES_BASE) // 2} requests at once"
        return Finding(name=name, verdict=Verdict.WARN, detail=found, hint=raise_it)
    return _ok(name, f"a process may hold {limit}")


def _processes(new: int, left: int | None) -> Finding:
    name = "processes"
    if left is None:
        return _ok(name, "no limit")
    least = _PROCESSES_BASE + _PROCESSES_PER_REPLICA * new
    if left < least:
        found = f"{left} more can be started, and {_counted(new)} take {least} and more"
        hint = "end some, or raise the limit (ulimit -u, the container's pids limit)"
        return Finding(name=name, verdict=Verdict.FAIL, detail=found, hint=hint)
    return _ok(name, f"{left} more can be started")


def _memory(new: int, left_bytes: int | None) -> Finding:
    name = "memory"
    if left_bytes is None:
        return _ok(name, "how much is left cannot be read here")
    least = _BYTES_BASE + _BYTES_PER_REPLICA * new
    hint = "end something, or plan fewer replicas on this machine"
    if left_bytes < least:
        found = f"{_size(left_bytes)} are left, and {_counted(new)} take {_size(least)} and more"
        return Finding(name=name, verdict=Verdict.FAIL, detail=found, hint=hint)
    if left_bytes < 2 * least:
        found = f"{_size(left_bytes)} are left, of which {_counted(new)} take {_size(least)} and more"
        return Finding(name=name, verdict=Verdict.WARN, detail=found, hint=hint)
    return _ok(name, f"{_size(left_bytes)} are left")


def _disk(replicas: int, headroom: MachineHeadroom) -> Finding:
    name, where, left_bytes = "disk", headroom.directory, headroom.disk_left_bytes
    if not headroom.is_writable:
        found = f"{where} cannot be written, and state and logs lie there"
        return Finding(name=name, verdict=Verdict.FAIL, detail=found, hint="mend its owner, or set XDG_STATE_HOME")
    hint = f"free some, or set XDG_STATE_HOME to another disk than that of {where}"
    if left_bytes < _DISK_BASE + _DISK_PER_REPLICA * replicas:
        found = f"{_size(left_bytes)} are left at {where}, too little for state and logs"
        return Finding(name=name, verdict=Verdict.FAIL, detail=found, hint=hint)
    if left_bytes < _DISK_AT_EASE:
        found = f"{_size(left_bytes)} are left at {where}; logs grow"
        return Finding(name=name, verdict=Verdict.WARN, detail=found, hint=hint)
    return _ok(name, f"{_size(left_bytes)} are left at {where}")


def _ok(name: str, found: str) -> Finding:
    return Finding(name=name, verdict=Verdict.OK, detail=found)


def _counted(replicas: int) -> str:
    return f"{replicas} replica" if replicas == 1 else f"{replicas} replicas"


def _size(value_bytes: int) -> str:
    return f"{value_bytes / 2**30:.1f} GiB" if value_bytes >= 2**30 else f"{value_bytes // _MIB} MiB"

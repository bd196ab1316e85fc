"""How much of this machine is left: open files, processes, memory, disk."""

from __future__ import annotations

import os
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

from fleetctl.paths import state_dir
from fleetctl_local import kernel

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
# A container's own limits, as cgroup v2 and v1 tell them from inside: the limit, what is used of it.
_PIDS = (("pids.max", "pids.current"), ("pids/pids.max", "pids/pids.current"))
_MEMORY = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineHeadroom:
    """What is left for engines, the gateway and the controller. None: nothing limits it, or nobody says."""

    open_files_max: int | None  # a process may raise its own limit to this
    processes_left: int | None
    memory_left_bytes: int | None
    directory: Path  # where logs and state are written
    disk_left_bytes: int
    is_writable: bool


def read_headroom() -> MachineHeadroom:
    """Read what is left of this machine for this user now."""
    directory = state_dir()
    there = next(path for path in (directory, *directory.parents) if path.exists())
    return MachineHeadroom(
        open_files_max=_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        processes_left=_least(_user_processes_left(), _cgroup_left(_PIDS)),
        memory_left_bytes=memory_left(),
        directory=directory,
        disk_left_bytes=shutil.disk_usage(there).free,
        is_writable=os.access(there, os.W_OK),
    )


def memory_left() -> int | None:
    """Return the bytes that are free, of this machine or of the container this runs in; None: nobody says."""
    return _least(_machine_memory_left(), _cgroup_left(_MEMORY))


def _limit(value: int) -> int | None:
    return None if value in (-1, resource.RLIM_INFINITY) else value


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _user_processes_left() -> int | None:
    """Return how many more threads this user may have; the kernel does not limit root's."""
    limit = _limit(resource.getrlimit(resource.RLIMIT_NPROC)[0])
    if limit is None or os.getuid() == 0:
        return None
    return max(0, limit - sum(_threads(pid) for pid in kernel.pids()))


def _threads(pid: int) -> int:
    try:
        return sum(1 for _ in (_PROC / str(pid) / "task").iterdir()) if kernel.IS_LINUX else 1
    except OSError:
        return 0  # it ended while we looked


def _machine_memory_left() -> int | None:
    if not kernel.IS_LINUX:
        import psutil

        return int(psutil.virtual_memory().available)
    return _figures(_PROC / "meminfo").get("MemAvailable:", 0) * 1024 or None


def _cgroup_left(files: tuple[tuple[str, ...], ...]) -> int | None:
    """Return what a cgroup's limit leaves; memory the kernel would give back counts as left."""
    for limit_file, used_file, *stat_file in files:
        limit, used = _number(_CGROUPS / limit_file), _number(_CGROUPS / used_file)
        if limit is None or used is None:
            continue
        stat = _figures(_CGROUPS / stat_file[0]) if stat_file else {}
        return max(0, limit - used + stat.get("total_inactive_file", stat.get("inactive_file", 0)))
    return None


def _number(path: Path) -> int | None:
    """Return a file's one number; None where there is none, or the word "max"."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _figures(path: Path) -> dict[str, int]:
    """Return a file's "name number" lines."""
    try:
        pairs = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) > 1 and pair[1].isdigit()}

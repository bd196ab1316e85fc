"""How often the kernel's OOM killer has killed, where it says so."""

from __future__ import annotations

from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_MACHINE = Path("/proc/vmstat")
_KEY = "oom_kill"


def oom_kills(*, own: Path = Path("/proc/self/cgroup"), root: Path = _CGROUP, machine: Path = _MACHINE) -> int | None:
    """Return the number of OOM kills in this process's memory cgroup, else on the machine; None: neither can be read.

    A node's engine is in the cgroup of the process that started it. Version 2 counts in memory.events, version 1 in
    memory.oom_control; within a container the own cgroup is mounted as the root.
    """
    for path in (*_files(own, root), machine):
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            continue  # not mounted, of the other version, or not ours to read: the next one may be
        for line in text.splitlines():
            key, _, count = line.partition(" ")
            if key == _KEY and count.strip().isdigit():
                return int(count)
    return None


def _files(own: Path, root: Path) -> list[Path]:
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        where = path.lstrip("/")
        if not controllers:
            found += [root / where / "memory.events", root / "memory.events"]
        elif "memory" in controllers.split(","):
            found += [root / "memory" / where / "memory.oom_control", root / "memory" / "memory.oom_control"]
    return found

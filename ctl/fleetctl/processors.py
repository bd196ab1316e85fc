"""How many processors this process may compute with at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_CGROUPS, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def usable_cpus(*, cgroups: Path = _CGROUPS, own: Path = _OWN) -> int:
    """Return how many CPUs may be busy at once, at least 1: those it may run on, and no more than its control groups allow.

    A container or a systemd slice may be held to fewer than are seen. `cgroups` is where their files are mounted, `own` the
    list of the groups that this process is in.
    """
    seen = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quotas = [found for place in _places(cgroups, own) if (found := _quota(place))]
    return max(1, min([seen, *map(int, quotas)]))


def _places(cgroups: Path, own: Path) -> list[Path]:
    """Return where limits may be written: at the mount, where a container's own are, and in each group from this process's up."""
    found = [cgroups, cgroups / "cpu"]
    try:
        lines = own.read_text().splitlines()
    except OSError:  # there are none on other systems
        return found
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers in ("", "cpu", "cpu,cpuacct"):
            root = cgroups / controllers.partition(",")[0]
            inner = Path(path.lstrip("/"))
            found += [root / each for each in (inner, *inner.parents) if ".." not in each.parts]
    return found


def _quota(place: Path) -> float:
    """Return the CPUs that one control group allows; 0: it has no limit."""
    try:
        limit, period = (place / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit, period = ((place / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        except OSError:
            return 0.0
    return int(limit) / int(period) if limit.isdigit() and period.isdigit() and int(period) else 0.0

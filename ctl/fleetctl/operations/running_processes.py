"""Names a process so that anybody on its machine can tell later whether it still runs."""

from __future__ import annotations

import functools
import os
from pathlib import Path


@functools.cache
def this_process() -> str:
    """Return "BOOT/PID/STARTED": the kernel's boot, the pid, and the kernel's ticks at its start; empty without a /proc."""
    started = _started(os.getpid())
    return f"{_boot_id()}/{os.getpid()}/{started}" if started else ""


def is_gone(process: str) -> bool:
    """Whether a process that was named so on this machine has ended; False where that cannot be told."""
    boot, _, rest = process.partition("/")
    pid, _, started = rest.partition("/")
    here = _boot_id()
    if not started or not here or not pid.isdecimal():
        return False
    return boot != here or _started(int(pid)) != started


def _started(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # it has ended, or this system has no /proc
    # The name stands in brackets and may hold anything, brackets included; a zombie has ended.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""

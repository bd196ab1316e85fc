"""Processes of this machine: each by its pid and its birth, for a pid is given again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ProcessSeen(NamedTuple):
    """A process as the kernel shows it."""

    birth: str  # in the kernel's ticks since the machine started
    session: int
    has_ended: bool  # and nobody has waited for it


def look(pid: int) -> ProcessSeen | None:
    """Return what is known of a process; None: there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return ProcessSeen(birth=fields[19], session=int(fields[3]), has_ended=fields[0] in "ZX")


def identity(pid: int) -> list[str]:
    """Return what tells a process from every other, as records keep it."""
    seen = look(pid)
    return [str(pid), seen.birth if seen is not None else ""]


def is_alive(process: list[str] | None) -> bool:
    """Whether the process of an identity runs."""
    seen = look(int(process[0])) if process else None
    return seen is not None and process is not None and seen.birth == process[1] and not seen.has_ended


def signal_session(session: int, number: int) -> None:
    """Send a signal to every process of a session."""
    for name in (entry.name for entry in Path("/proc").iterdir()):
        if name.isdigit() and (seen := look(int(name))) is not None and seen.session == session and not seen.has_ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(name), number)


def boot_id() -> str:
    """Return what tells this start of the machine from every other."""
    return _BOOT_ID.read_text().strip()


def descriptors() -> Iterator[int]:
    """Yield what this process has open beside the standard three."""
    yield from (int(entry.name) for entry in Path("/proc/self/fd").iterdir() if int(entry.name) > 2)

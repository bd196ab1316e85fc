"""What the kernel says of processes: who is alive, whose session it is in, what its environment was at its start.

Linux is read from /proc rather than through psutil, for two things psutil does not give: a birth mark that a step of
the wall clock cannot move (psutil adds the boot time, which moves), and the exit status of a zombie. Elsewhere psutil
answers. Nothing else is imported, so that the reclaimer stays a small process.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from collections.abc import Collection, Iterator

_PROC = Path("/proc")
IS_LINUX = sys.platform == "linux"
_NEWBORN_S = 10.0  # on a starved machine a program takes seconds from its fork to its environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Ident:
    """A process that a reused pid cannot be taken for: `birth` differs."""

    pid: int
    birth: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A process at one moment. A zombie has ended; `wait_status` is what its parent will be told, if known."""

    ident: Ident
    session: int
    name: str  # as it calls itself, 15 characters of it
    is_zombie: bool
    wait_status: int | None = None


def look(pid: int) -> Seen | None:
    """Return what there is under a pid, or None."""
    return _look_linux(pid) if IS_LINUX else _look_elsewhere(pid)


def is_alive(ident: Ident | None) -> bool:
    """Whether exactly this process still runs."""
    seen = look(ident.pid) if ident else None
    return seen is not None and seen.ident == ident and not seen.is_zombie


def is_newborn(seen: Seen) -> bool:
    """Whether a process may still be about to show its environment; where its age cannot be told, it may."""
    if not IS_LINUX:
        return True
    born_s = int(seen.ident.birth.rpartition("-")[2]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - born_s < _NEWBORN_S


def pids() -> list[int]:
    """Return every process id of this user's, zombies included."""
    if not IS_LINUX:
        import psutil

        return list(psutil.pids())
    mine = os.getuid()
    found = []
    with os.scandir(_PROC) as entries:
        for entry in entries:
            if entry.name.isdigit():
                try:
                    if entry.stat().st_uid == mine:
                        found.append(int(entry.name))
                except FileNotFoundError:
                    continue  # it ended while we looked
    return found


def environment(pid: int) -> dict[str, str]:
    """Return the environment a process was started with; empty if it is gone, not ours, or just being born."""
    if not IS_LINUX:
        return _environment_elsewhere(pid)
    try:
        raw = (_PROC / str(pid) / "environ").read_bytes()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return {}
    pairs = (item.split(b"=", 1) for item in raw.split(b"\0") if b"=" in item)
    return {os.fsdecode(key): os.fsdecode(value) for key, value in pairs}


def pin(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends; None where the kernel has no such thing.

    While it is open the pid cannot come to mean another process. Raises ProcessLookupError.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:  # Linux before 5.3, and sandboxes that emulate it
        return None


def session_memory_bytes(sessions: Collection[int]) -> dict[int, int]:
    """Return what would be free if these sessions' processes ended, by session: without files' and shared pages."""
    held = dict.fromkeys(sessions, 0)
    for pid in pids() if sessions else ():
        seen = look(pid)
        if seen is not None and seen.session in held:
            held[seen.session] += _own_memory_bytes(pid)
    return held


def _own_memory_bytes(pid: int) -> int:
    """Return a process's own memory; 0: it is gone, or not ours."""
    if not IS_LINUX:
        import psutil

        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return 0
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


@contextmanager
def running_on(cpus: Collection[int]) -> Iterator[None]:
    """Have the processes this thread starts meanwhile run on these logical CPUs only; none: wherever this one may."""
    if not cpus or not IS_LINUX:
        yield
        return
    before = os.sched_getaffinity(0)  # of this thread: the others go on where they were
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def send(ident: Ident, number: signal.Signals) -> None:
    """Signal exactly this process; nothing happens if it has ended."""
    try:
        fd = pin(ident.pid)
    except ProcessLookupError:
        return
    try:
        if is_alive(ident):
            os.kill(ident.pid, number)
    except ProcessLookupError:
        return
    finally:
        if fd is not None:
            os.close(fd)


def members(leader: Ident, *, tags: dict[str, str]) -> list[Ident]:
    """Return living processes of the session `leader` began, and any that carry all `tags`, wherever they have gone."""
    head = look(leader.pid)
    # While members of a session live, its number is not given to a new process: another birth there means a stranger.
    is_ours = head is None or head.ident == leader
    found = []
    for pid in pids():
        seen = look(pid)
        if seen is None or seen.is_zombie or pid == os.getpid():
            continue
        carried = environment(pid)
        is_untagged = is_ours and seen.session == leader.pid and not carried.keys() & tags.keys()
        if is_untagged or all(carried.get(name) == value for name, value in tags.items()):
            found.append(seen.ident)
    return found


@lru_cache(maxsize=1)
def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8]


def _look_linux(pid: int) -> Seen | None:
    try:
        raw = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may itself hold spaces and parentheses, so fields are counted from its end.
    end = raw.rindex(b")")
    fields = raw[end + 2 :].split()
    return Seen(
        ident=Ident(pid=pid, birth=f"{_boot()}-{int(fields[19])}"),
        session=int(fields[3]),
        name=raw[raw.index(b"(") + 1 : end].decode(errors="replace"),
        is_zombie=fields[0] in (b"Z", b"X"),
        wait_status=int(fields[49]) if fields[0] == b"Z" else None,
    )


def _look_elsewhere(pid: int) -> Seen | None:
    import psutil

    try:
        found = psutil.Process(pid)
        return Seen(
            ident=Ident(pid=pid, birth=f"{found.create_time():.2f}"),
            session=os.getsid(pid),
            name=found.name()[:15],
            is_zombie=found.status() == psutil.STATUS_ZOMBIE,
        )
    except (psutil.NoSuchProcess, ProcessLookupError):
        return None


def _environment_elsewhere(pid: int) -> dict[str, str]:
    import psutil

    try:
        return dict(psutil.Process(pid).environ())
    except (psutil.Error, OSError):
        return {}

"""Segments of shared memory that a killed engine leaves behind: known from its processes while they live, removed after.

Python's multiprocessing removes its own at an orderly end alone; a vLLM that is killed leaves some 250 MB of them. Only
those of a kind that no program means to outlive it are removed, and only once nobody maps or holds them open.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl_local import kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

_DIRECTORY = Path("/dev/shm")  # noqa: S108  # where Linux keeps them; nothing is created there
# CPython's multiprocessing.shared_memory and .synchronize, PyTorch's file_system sharing, NCCL's rings.
_PREFIXES = ("psm_", "sem.mp-", "torch_", "nccl-")
# The inode on a line of /proc/PID/maps. The name says little: glibc makes a semaphore under another and renames it.
_MAPPED = re.compile(rb"^\S+ \S+ \S+ \S+ (\d+) +/dev/shm/", re.MULTILINE)


def held_by(pids: Iterable[int]) -> frozenset[str]:
    """Return the segments that these processes map or hold open, each as INODE:NAME; one that has ended holds none."""
    inodes = {inode for pid in pids for inode in (*_mapped(pid), *_open(pid))}
    return frozenset(f"{inode}:{name}" for inode, name in _there() if inode in inodes) if inodes else frozenset()


def held_in_sessions(leaders: frozenset[int]) -> dict[int, frozenset[str]]:
    """Return the same of every process in the sessions that these processes began, by the leader's pid."""
    members: dict[int, list[int]] = {}
    for pid in kernel.pids() if leaders else ():
        seen = kernel.look(pid)
        if seen is not None and seen.session in leaders and not seen.is_zombie:
            members.setdefault(seen.session, []).append(pid)
    return {leader: held_by(pids) for leader, pids in members.items()}


def remove_unheld(segments: Iterable[str]) -> None:
    """Remove those of these segments that are still there, are ours, and that no process of this user's holds."""
    left = {segment for segment in segments if _is_ours(segment)}
    if not left:
        return
    for segment in left - held_by(kernel.pids()):
        (_DIRECTORY / _name(segment)).unlink(missing_ok=True)


def _there() -> list[tuple[int, str]]:
    """Return the inode and the name of every segment of a kind that engines make."""
    try:
        with os.scandir(_DIRECTORY) as entries:
            return [(entry.inode(), entry.name) for entry in entries if entry.name.startswith(_PREFIXES)]
    except OSError:
        return []  # this system keeps none there


def _mapped(pid: int) -> list[int]:
    try:
        maps = Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return []  # it has ended, or this system does not tell
    return [int(inode) for inode in _MAPPED.findall(maps)]


def _open(pid: int) -> list[int]:
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return []
    return [inode for each in descriptors if (inode := _inode_behind(each)) is not None]


def _inode_behind(descriptor: Path) -> int | None:
    try:
        return descriptor.stat().st_ino if descriptor.readlink().parent == _DIRECTORY else None
    except OSError:
        return None  # it was closed while we looked


def _name(segment: str) -> str:
    return segment.partition(":")[2]


def _is_ours(segment: str) -> bool:
    """Whether there is exactly this segment, and not another of its name."""
    if "/" in segment or not _name(segment).startswith(_PREFIXES):
        return False
    try:
        seen = (_DIRECTORY / _name(segment)).lstat()
    except OSError:
        return False
    is_same = str(seen.st_ino) == segment.partition(":")[0]
    return is_same and stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid()

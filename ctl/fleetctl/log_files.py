"""Log files of processes that hold them open for life: opened to append, copied away when long, removed when old.

An engine writes to a descriptor that it inherited, so renaming its log would only rename what it goes on writing to, and a
pipe would tie its life to the reader's. So a long log is copied and cut to nothing (copytruncate): every writer appends, so
its next line begins the file anew. What is written between the copy's last read and the cut, some microseconds, is lost.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fleetctl.errors import is_disk_full

if TYPE_CHECKING:
    from collections.abc import Collection

LOG_MODE = 0o600
_PIECE = 1024 * 1024
_COPIES_MAX = 2
_NAME = re.compile(r"(?P<process>.+)\.log(?:\.\d+)?")
# These are of one process after another, and never of an ended replica.
_LASTING = ("controller", "gateway", *(f"gateway-{number}" for number in range(2, 17)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """What a fleet's logs may come to. Each process has its log and its copies; ended replicas share the rest."""

    file_bytes_max: int = 8 * 1024 * 1024
    copies_max: int = _COPIES_MAX
    ended_max: int = 100  # files of replicas that are gone
    ended_bytes_max: int = 64 * 1024 * 1024
    ended_s_max: float = 7 * 24 * 3600.0


def open_log(path: Path) -> IO[bytes]:
    """Open a log to append to, the user's alone; a link in its place is not followed. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, LOG_MODE)
    os.fchmod(descriptor, LOG_MODE)
    return os.fdopen(descriptor, "ab")


def open_log_or_discard(path: Path) -> IO[bytes]:
    """Open a log to append to, or nowhere while the disk has no room for a new file. Raises OSError otherwise."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return open_log(path)
    except OSError as exc:
        if not is_disk_full(exc):
            raise
        return Path(os.devnull).open("ab")


def begin_log(path: Path, *, copies_max: int = _COPIES_MAX) -> IO[bytes]:
    """Open the log of a process that starts; what another of this name wrote before is moved aside. Raises OSError."""
    if path.exists() and not path.is_symlink():
        path.replace(_next_copy(path, copies_max))
    return open_log(path)


def keep_within(directory: Path, limits: LogLimits, *, living: Collection[str], now_s: float) -> None:
    """Cut long logs and remove those of replicas that are gone; `now_s` is Unix time. Raises OSError."""
    for path in directory.glob("*.log"):
        if path.lstat().st_size > limits.file_bytes_max and not path.is_symlink():
            _cut(path, limits)
    _remove_ended(directory, limits, living=living, now_s=now_s)


def _cut(path: Path, limits: LogLimits) -> None:
    """Copy a log aside, then empty it."""
    copy = _next_copy(path, limits.copies_max)
    copy.unlink(missing_ok=True)
    with path.open("rb+") as log, open_log(copy) as out:
        # One that grew a little past its bound is kept whole; of a flood the newest part is.
        size = log.seek(0, os.SEEK_END)
        log.seek(size - limits.file_bytes_max if size > 2 * limits.file_bytes_max else 0)
        while piece := log.read(_PIECE):
            out.write(piece)
        log.truncate(0)


def _next_copy(path: Path, copies_max: int) -> Path:
    """Return the name of a log's newest copy, after moving the older ones on."""
    for number in range(copies_max, 1, -1):
        older = path.with_name(f"{path.name}.{number - 1}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number}"))
    return path.with_name(f"{path.name}.1")


def _remove_ended(directory: Path, limits: LogLimits, *, living: Collection[str], now_s: float) -> None:
    ended = []
    for path in directory.iterdir():
        found = _NAME.fullmatch(path.name)
        if found is not None and found["process"] not in living and found["process"] not in _LASTING:
            ended.append((path.lstat(), path))
    bytes_kept = 0
    for number, (seen, path) in enumerate(sorted(ended, key=lambda pair: pair[0].st_mtime, reverse=True)):
        bytes_kept += seen.st_size
        is_old = now_s - seen.st_mtime > limits.ended_s_max
        if is_old or number >= limits.ended_max or bytes_kept > limits.ended_bytes_max:
            path.unlink(missing_ok=True)

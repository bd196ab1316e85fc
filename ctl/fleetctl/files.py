"""Writes files whole: a reader sees the old content or the new, never half of either."""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path


def write_whole(path: Path, raw: bytes, *, mode: int, is_durable: bool = False) -> None:
    """Replace a file in one step; its directory must be there. `is_durable` waits for the disk. Raises OSError."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        draft.chmod(mode)
        draft.replace(path)
        if is_durable:
            _flush_directory(path.parent)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def raise_descriptor_limit() -> int:
    """Allow as many open files as the system lets this process have; return how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _flush_directory(directory: Path) -> None:
    """Wait until a directory's names are on the disk: a rename alone may not outlive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_end(path: Path, *, bytes_max: int, after: int | None = None) -> tuple[str, int]:
    """Return what a growing file holds behind byte `after`, at most `bytes_max` of it, and where that ends.

    Without `after` it is the end of the file. A file that has become shorter is read from its beginning; one that is
    not there is empty. What is no UTF-8 is replaced.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - bytes_max) if after is None else after if after <= size else 0
            file.seek(start)
            raw = file.read(bytes_max)
    except FileNotFoundError:
        return "", 0
    return raw.decode(errors="replace"), start + len(raw)


def read_log(path: Path, *, bytes_max: int, after: int | None = None) -> tuple[str, int]:
    """Return a piece of a log as `read_end` does; its end goes back into the copy that was moved aside before."""
    text, end = read_end(path, bytes_max=bytes_max, after=after)
    missing = bytes_max - end
    if after is None and missing > 0:
        text = read_end(path.with_name(f"{path.name}.1"), bytes_max=missing)[0] + text
    return text, end

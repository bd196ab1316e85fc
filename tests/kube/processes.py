"""Processes that end with whoever started them, even where that was killed."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends; called between fork and exec."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def start(
    *argv: str | Path, log: Path, directory: Path, env: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start a process in a session of its own that writes to `log` and ends with us."""
    with log.open("ab") as out:
        return await asyncio.create_subprocess_exec(
            *map(str, argv),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=directory,
            env=None if env is None else dict(env),
            start_new_session=True,
            preexec_fn=end_with_parent,
        )


@contextmanager
def running(*argv: str | Path, log: Path, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Have a program run that writes to `log`; it is killed in the end, and ends with us."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*map(str, argv)], env=None if env is None else dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            preexec_fn=end_with_parent,  # noqa: PLW1509  # no thread of ours holds a lock that prctl would take
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)

"""Sees a process end at once, child or not, instead of at the next tick."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ExitWatch:
    """Calls `on_exit` when the watched process ends; one process at a time.

    Built on pidfds (Linux 5.3). Where there are none nothing is called, and the caller's own polling has to do.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._fd = -1

    def follow(self, pid: int | None, on_exit: Callable[[], None]) -> None:
        """Watch `pid` from now on instead of whichever was watched before; None: nobody."""
        if pid == self._pid and self._fd >= 0:
            return
        self.close()
        if pid is None or not hasattr(os, "pidfd_open"):
            return
        try:
            self._fd = os.pidfd_open(pid)
        except OSError:
            # Gone between being named and being watched, or a kernel without pidfds: the next tick sees what is true.
            return
        self._pid = pid
        asyncio.get_running_loop().add_reader(self._fd, self._ended, on_exit)

    def close(self) -> None:
        """Watch nobody."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
        self._pid, self._fd = 0, -1

    def _ended(self, on_exit: Callable[[], None]) -> None:
        self.close()
        on_exit()

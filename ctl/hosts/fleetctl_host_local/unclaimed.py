"""Controllers that were started from here and have not taken the lock: one that is stopped there would stay for ever.

No heartbeat tells of it, as that is the lock's; and once it goes on it finds its successor's lock and ends, which nobody
would wait for.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fleetctl_host_local.activity import is_stopped
from fleetctl_host_local.heartbeat import STOPPED_S

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from fleetctl.locks import FileLock

_log = logging.getLogger("fleetctl.host.local")


class UnclaimedControllers:
    """Keeps the controllers that this process has started, until they end."""

    def __init__(self, lock: FileLock, *, is_stopped: Callable[[int], bool] = is_stopped) -> None:
        self._lock = lock
        self._is_stopped = is_stopped
        self._stopped_since_s: dict[subprocess.Popen[bytes], float | None] = {}

    def add(self, child: subprocess.Popen[bytes]) -> None:
        """Keep a controller just started."""
        self._stopped_since_s[child] = None

    @property
    def children(self) -> tuple[subprocess.Popen[bytes], ...]:
        """Those that had not ended at the last look, with the lock or without."""
        return tuple(self._stopped_since_s)

    def end_stopped(self, now_s: float, *, within_s: float = STOPPED_S) -> bool:
        """Kill those that have been stopped for so long without the lock; return whether there was one."""
        holder = self._lock.holder()
        has_killed = False
        for child, since_s in list(self._stopped_since_s.items()):
            has_claimed = holder is not None and holder.pid == child.pid
            if child.poll() is not None:
                del self._stopped_since_s[child]
            elif has_claimed or not self._is_stopped(child.pid):
                self._stopped_since_s[child] = None
            elif now_s - (now_s if since_s is None else since_s) < within_s:
                self._stopped_since_s[child] = now_s if since_s is None else since_s
            else:
                # A process that is stopped takes no other signal.
                child.kill()
                has_killed = True
                _log.warning(
                    "the controller started as process %d was stopped before it took its lock; killed", child.pid
                )
        return has_killed

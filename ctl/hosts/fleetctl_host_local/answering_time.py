"""How much of the time in which a process did not answer speaks against it.

A call's deadline may pass while its answer is on its way, or lies there already: on a machine in distress the process
that is to answer has no processor, or whoever waits for it has none. Only a process that was asleep all the while, with
nothing withheld from it nor from us, is not going to answer. One that computes and beats is busy: ended for that it
would lose every stream it carries, and its successor would be as busy.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from fleetctl_host_local.activity import Activity, read_activity

# A watcher that was away for longer, stopped perhaps, has not waited for an answer meanwhile. A tick in which every call
# of the gateway runs into its deadline takes four seconds.
_SEEN_S_MAX = 5.0


@dataclass(slots=True)
class AnsweringTime:
    """Looks at one process and at ourselves every so often."""

    read: Callable[[int], Activity | None] = read_activity
    _pid: int = 0
    _looked_s: float = 0.0
    _seen: Activity | None = None
    _own_delay_s: float = 0.0

    def lost_s(self, pid: int, now_s: float) -> float:
        """Return how many of the seconds since the last look say nothing about its silence.

        More than went by, where a wait has ended that began before: the system adds it up once a thread runs again.
        `pid` 0: there is none. 0.0 at a first look, and where the system does not tell.
        """
        before, seen, own = self._seen, self.read(pid) if pid else None, self.read(os.getpid())
        own_delay_s = own.delay_s if own is not None else 0.0
        lost_s = 0.0
        if before is not None and seen is not None and pid == self._pid:
            elapsed_s = now_s - self._looked_s
            delay_s = seen.delay_s - before.delay_s + own_delay_s - self._own_delay_s
            busy_s = 0.0 if before.is_idle and seen.is_idle else elapsed_s
            lost_s = max(delay_s, busy_s, elapsed_s - _SEEN_S_MAX)
        self._pid, self._looked_s, self._seen, self._own_delay_s = pid, now_s, seen, own_delay_s
        return lost_s

"""Tells a process that holds its lock and does not progress: it is stopped, or its loop stands still.

The heartbeat is the modification time of the lock's file, set about once a second from the process's own loop, on
CLOCK_MONOTONIC: that is one scale in every process of a boot, no step of the wall clock moves it, and setting it needs
neither room on the disk nor anybody's answer.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from fleetctl.locks import FileLock
from fleetctl.ports.host import Stall, StallKind

# Nobody is stopped by accident, and its state says so for certain; a heartbeat is due twice within it.
STOPPED_S = 2.0
# Without a beat: longer than a machine in distress withholds a processor or the disk. With the load at four times the
# cores it was 1.3 s at most, but 7.4 s once where three engines loaded torch beside two test runs (2026-11, 2 cores):
# a gateway that is killed for it loses every stream it carries.
HUNG_S = 20.0
# A watcher that was stopped itself, with the whole machine perhaps, must see again and again that nothing moves.
_LOOKS_MIN = 3
_LOOK_S = 0.4
_STOPPED_STATES = ("T", "t")


@dataclass(slots=True)
class StallWatch:
    """Watches one lock's holder, looked at every second or so."""

    lock: FileLock
    _pid: int = 0
    _beat_s: float | None = None
    _since_s: float = 0.0
    _looks: int = 0
    _looked_s: float = float("-inf")

    def look(self, now_s: float) -> Stall | None:
        """Return what is wrong with the holder and for how long it was so under this watch; None: nothing, or no holder."""
        holder = self.lock.holder()
        pid, beat_s = (holder.pid if holder else 0), self.lock.beaten_at_s()
        if pid != self._pid or beat_s != self._beat_s:
            self._pid, self._beat_s, self._since_s, self._looks = pid, beat_s, now_s, 0
        elif now_s - self._looked_s >= _LOOK_S:
            self._looks, self._looked_s = self._looks + 1, now_s
        if holder is None or beat_s is None:
            return None
        # That a process is stopped is certain at one look.
        if self._looks < _LOOKS_MIN and not is_stopped(pid):
            return None
        return stall_of(pid, now_s - self._since_s)


def stall_of(pid: int, silent_s: float) -> Stall | None:
    """Return what is the case with a process that has not progressed for so long; None: nothing worth a word."""
    kind = StallKind.STOPPED if is_stopped(pid) else StallKind.HUNG
    limit_s = STOPPED_S if kind is StallKind.STOPPED else HUNG_S
    return Stall(pid=pid, kind=kind, for_s=silent_s) if silent_s > limit_s else None


def current_stall(lock: FileLock, now_s: float) -> Stall | None:
    """Return what one look tells of a lock's holder, for whoever does not watch: a command."""
    holder, beat_s = lock.holder(), lock.beaten_at_s()
    return stall_of(holder.pid, now_s - beat_s) if holder is not None and beat_s is not None else None


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal or a debugger; False where the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in _STOPPED_STATES


def kill_holder(lock: FileLock, stall: Stall) -> bool:
    """Kill the process that holds the lock, if it is still the stalled one; return whether it was.

    SIGKILL at once: a process that is stopped takes no other signal.
    """
    try:
        process = os.pidfd_open(stall.pid)
    except OSError:
        return False
    try:
        # The number is this process's for as long as the descriptor is open: what holds the lock now is what is killed.
        holder = lock.holder()
        if holder is None or holder.pid != stall.pid:
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(process)
    return True

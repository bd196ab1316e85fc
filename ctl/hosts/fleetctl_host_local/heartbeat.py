"""Tells a process that holds its lock and does not progress: it is stopped, or its loop stands still.

The heartbeat is the modification time of the lock's file, set about once a second from the process's own loop, on
CLOCK_MONOTONIC: that is one scale in every process of a boot, no step of the wall clock moves it, and setting it needs
neither room on the disk nor anybody's answer.

A beat that does not come proves nothing by itself: a machine in distress withholds the processor or the disk, and a
gateway that is killed for it loses every stream it carries. So what counts is the time in which the process could have
beaten, and did not: asleep or computing, as `activity` tells.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.locks import FileLock
from fleetctl.ports.runtime import Stall, StallKind
from fleetctl_host_local.activity import Activity, idle_s, is_stopped, read_activity

# Nobody is stopped by accident, and its state says so for certain; a heartbeat is due twice within it.
STOPPED_S = 2.0
# Three beats are due within it. Asleep without a beat, a loop of ours is for at most the 2 s that a controller which takes
# its leave waits for a locked state.
HUNG_S = 3.0
# Of a processor, not of the clock, and by all of its threads. Nothing that a gateway does at a stretch takes a second of it,
# and every stream waits for one that does.
COMPUTING_S = 1.5
# A controller decides on a whole fleet at once, with threads beside it that read listings. It beats between the parts of its
# work, the longest of which took 0.6 s of a processor for 1,200 replicas (two shared cores, 2026-11-28). Nobody is served worse while it
# computes, and a successor of one that is killed for it begins the same work anew: so it may for ten times that.
CONTROLLER_COMPUTING_S = 6.0
# Whatever the machine does meanwhile: a process that had neither processor nor disk for so long serves nobody.
LOST_S = 60.0
# A watcher that was away itself, with the whole machine perhaps, has seen no more than this of what went on meanwhile.
_SEEN_S_MAX = 1.5
# What a command that does not watch asks for: silence that nobody's patience with a busy machine explains, and a sample.
_SILENT_S = 6.0
_SAMPLE_S = 0.3


@dataclass(slots=True)
class StallWatch:
    """Watches one lock's holder, looked at every second or so."""

    lock: FileLock
    read: Callable[[int], Activity | None] = read_activity
    computing_s: float = COMPUTING_S  # that its holder may compute without a beat
    _pid: int = 0
    _beat_s: float | None = None
    _silent_s: float = 0.0  # since the last beat, as far as it was watched
    _idle_s: float = 0.0  # of that
    _cpu_s: float = 0.0
    _looked_s: float = 0.0  # 0: not yet
    _seen: Activity | None = None

    @property
    def is_beating(self) -> bool:
        """Whether the last beat was of late, or none is to be expected."""
        return self._beat_s is None or self._silent_s < HUNG_S

    def look(self, now_s: float, *, starting_pid: int = 0) -> Stall | None:
        """Return what is wrong with the holder, or with one that has not its lock yet; None: nothing, or nobody."""
        holder = self.lock.holder()
        pid, beat_s = (holder.pid if holder else starting_pid), self.lock.beaten_at_s() if holder else None
        is_first = not self._looked_s
        if (pid, beat_s) != (self._pid, self._beat_s):
            self._pid, self._beat_s, self._seen = pid, beat_s, None
            self._silent_s = self._idle_s = self._cpu_s = 0.0
        activity = self.read(pid) if pid else None
        self._count(activity, now_s)
        if activity is None:
            return None
        # A watcher that has just begun was not stopped together with what it finds stopped: the beats' age counts.
        if is_first and activity.is_stopped and beat_s is not None:
            self._silent_s = self._idle_s = max(0.0, now_s - beat_s)
        return self._judge(activity)

    def _count(self, activity: Activity | None, now_s: float) -> None:
        if self._seen is not None and activity is not None:
            elapsed_s = now_s - self._looked_s
            self._silent_s += min(_SEEN_S_MAX, elapsed_s)
            self._idle_s += min(_SEEN_S_MAX, idle_s(self._seen, activity, elapsed_s))
            self._cpu_s += min(_SEEN_S_MAX, activity.cpu_s - self._seen.cpu_s)
        self._seen, self._looked_s = activity, now_s

    def _judge(self, activity: Activity) -> Stall | None:
        if activity.is_stopped:
            kind, is_certain = StallKind.STOPPED, self._idle_s > STOPPED_S
        elif self._beat_s is not None:
            had_time = self._idle_s > HUNG_S or self._cpu_s > self.computing_s
            kind, is_certain = StallKind.HUNG, had_time or self._silent_s > LOST_S
        else:
            return None
        return Stall(pid=self._pid, kind=kind, for_s=self._silent_s) if is_certain else None


def current_stall(lock: FileLock, now_s: float) -> Stall | None:
    """Return what a short look tells of a lock's holder, for whoever does not watch: a command. Takes 0.3 s at most."""
    holder, beat_s = lock.holder(), lock.beaten_at_s()
    if holder is None:
        return None
    # One that was stopped before its first beat is stopped all the same; since when is not known.
    silent_s = now_s - beat_s if beat_s is not None else 0.0
    if is_stopped(holder.pid):
        is_young = beat_s is not None and silent_s <= STOPPED_S
        return None if is_young else Stall(pid=holder.pid, kind=StallKind.STOPPED, for_s=silent_s)
    if silent_s <= _SILENT_S or not _stands_still(holder.pid) or lock.beaten_at_s() != beat_s:
        return None
    return Stall(pid=holder.pid, kind=StallKind.HUNG, for_s=silent_s)


def _stands_still(pid: int) -> bool:
    """Whether a process is asleep, or computes, for most of a moment."""
    before = read_activity(pid)
    SYSTEM_CLOCK.sleep_blocking(_SAMPLE_S)
    after = read_activity(pid)
    if before is None or after is None:
        return False
    return max(idle_s(before, after, _SAMPLE_S), after.cpu_s - before.cpu_s) > _SAMPLE_S / 2


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
